package bridge

import _ "example.com/broken/host/sub"

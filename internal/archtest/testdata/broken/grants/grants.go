package grants // want file

import (
	_ "example.com/broken/provider"
	_ "example.com/broken/redact"
	_ "example.com/broken/secret"
)

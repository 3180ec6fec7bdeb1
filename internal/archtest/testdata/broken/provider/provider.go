// Package provider is documented.
package provider

import (
	_ "example.com/broken/grants"
	_ "example.com/broken/redact"
)

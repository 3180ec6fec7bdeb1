//go:build !wasip1

package hostcall

// Current is nil outside a plugin until a test installs a fake.
var Current API

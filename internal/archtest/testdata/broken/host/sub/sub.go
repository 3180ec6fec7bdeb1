// Package sub is documented.
package sub

// Package cellar is documented.
package cellar

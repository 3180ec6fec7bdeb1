// Package plugins benchmarks the plugin engine beside other ways to run plugins.
// Everything is in its tests.
package plugins

// Package redaction benchmarks the redactor beside other ways to mask secrets.
// Everything is in its tests.
package redaction

//go:build !cgo

package main

const withCgo = false

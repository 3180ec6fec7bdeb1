//go:build !unix

package main

func usableUmask() {} // there is none here

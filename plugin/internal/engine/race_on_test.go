//go:build race

package engine_test

// slack widens time limits where the race detector slows everything down.
const slack = 8

//go:build !race

package engine_test

const slack = 1

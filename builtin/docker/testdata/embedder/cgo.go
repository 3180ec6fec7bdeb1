//go:build cgo

package main

/*
#include <stdio.h>
#include <stdlib.h>

int one(void) { return 1; }

__attribute__((constructor)) static void constructor(void) {
	const char *name = getenv("EMBEDDER_STARTS");
	FILE *f = name ? fopen(name, "a") : NULL;
	if (f) {
		fputs("constructor\n", f);
		fclose(f);
	}
}
*/
import "C"

var withCgo = C.one() == 1

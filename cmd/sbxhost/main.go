// Command sbxhost runs commands in sandboxes with granted secrets.
package main

import "os"

func main() { os.Exit(mainCode()) }

// mainCode is main without the exit, for the script tests.
func mainCode() int {
	usableUmask()
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	return a.execute(os.Args[1:])
}

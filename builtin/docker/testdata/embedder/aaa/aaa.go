// Package aaa is initialised before most others, and says so.
package aaa

import "os"

func init() { Note("package") }

// Note adds a line to the file that EMBEDDER_STARTS names.
func Note(line string) {
	f, err := os.OpenFile(os.Getenv("EMBEDDER_STARTS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return // nobody counts
	}
	_, _ = f.WriteString(line + "\n")
	_ = f.Close()
}

package host

// The names of the output streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Event is a piece of output, or the end of a command.
type Event struct {
	// Stream is Stdout or Stderr; "" for the end.
	Stream string `json:"stream,omitempty"`
	// Offset of Data in the redacted stream, in bytes.
	Offset int64 `json:"offset"`
	// Data is redacted output. The receiver owns it.
	Data []byte `json:"data,omitempty"`
	// Exit is set in the one terminal event, the last one.
	Exit *Result `json:"exit,omitempty"`
}

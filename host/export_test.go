package host

import "github.com/sbxhost/sbxhost/manifest"

// SetManifest edits a live session's manifest directly, as no caller can.
func SetManifest(s *Session, m manifest.Manifest) { s.manifest = m }

// Truncate is truncate of a whole stream.
func Truncate(b []byte, limit int64) ([]byte, bool) {
	return truncate(b, nil, int64(len(b)), limit)
}

// TimeoutNotice is timeoutNotice.
var TimeoutNotice = timeoutNotice

// Seconds is seconds.
var Seconds = seconds

// ParseState is parseState without its result.
func ParseState(data []byte) (manifest.Manifest, error) {
	s, err := parseState(data)
	return s.manifest, err
}

// AnswerGrace is how long a provider may take to come back.
const AnswerGrace = answerGrace

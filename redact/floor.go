package redact

import (
	"strconv"
	"strings"
)

const (
	shortFloor = 4 // nothing shorter is ever masked
	boundFloor = 6 // from here without opt-in, at token boundaries
	minLength  = 8 // default of Options.MinLen
)

const reasonEmpty = "empty: there is nothing to mask"

// stopWords are values so common that masking them would rewrite ordinary
// output; most of them are no secrets at all.
var stopWords = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(`
		true false null none nil yes no on off ok undefined nan void default
		admin administrator root user username guest test testing tester
		localhost 127.0.0.1 0.0.0.0 ::1 example example.com
		password passwd secret token changeme changeit
		production development staging prod dev stage local debug release
		info warn warning error trace enabled disabled required optional
		main master latest stable current public private internal
		http https http:// https:// utf-8 utf8 string number object array
		postgres postgresql mysql mariadb mongodb redis sqlite ubuntu debian alpine linux windows docker
		/ /tmp /root /home /usr/bin /workspace workspace service_account application/json`) {
		m[w] = true
	}
	return m
}()

func stopWord(s string) bool { return len(s) <= longestStopWord && stopWords[strings.ToLower(s)] }

var longestStopWord = func() (n int) {
	for w := range stopWords {
		n = max(n, len(w))
	}
	return
}()

// verdict says how a value may be masked; with a reason it may not.
type verdict struct {
	bound  bool // only where no letter or digit stands beside it
	reason string
}

// judge applies the floors to a value's core. The reasons tell lengths only as
// far as the floors do.
func judge(c string, minLen int, allowShort bool) verdict {
	switch {
	case c == "":
		return verdict{reason: reasonEmpty}
	case len(c) < shortFloor:
		return verdict{reason: "shorter than " + strconv.Itoa(shortFloor) + " bytes: masking it would rewrite ordinary text"}
	case stopWord(c):
		return verdict{reason: "a common word: masking it would rewrite ordinary text"}
	case !wordy(c, 1) && distinct(c) < 3:
		return verdict{reason: "only punctuation: masking it would rewrite ordinary text"}
	case len(c) < boundFloor && len(c) < minLen && !allowShort:
		return verdict{reason: "shorter than " + strconv.Itoa(boundFloor) + " bytes: use a longer value, or lower the minimum length"}
	}
	return verdict{bound: len(c) < minLen}
}

package host

import (
	"strconv"
	"time"
)

// timeoutNotice says what happened at a deadline and what to do about it.
func timeoutNotice(after time.Duration, dead bool) string {
	s := "the command ran for " + seconds(after) + ", its time limit, and was stopped"
	if !dead {
		s = "the command ran for " + seconds(after) + ", its time limit; it was told to stop, but the provider has not confirmed that it did"
	}
	return s + "; output up to then is kept. Start a long-lived program, such as a server, in the background: cmd >cmd.log 2>&1 &"
}

// seconds writes a duration as "1 second", "1.5 seconds".
func seconds(d time.Duration) string {
	n := strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
	if n == "1" {
		return "1 second"
	}
	return n + " seconds"
}

// inputNotice says why a command was stopped whose input failed.
const inputNotice = "the command's input could not be read to its end, and the command was stopped: it would have taken what it had for the whole"

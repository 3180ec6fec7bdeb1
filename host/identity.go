package host

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
)

// randomID returns 128 random bits in hex.
func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

var (
	ownerPattern   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	sessionPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

func validOwner(id string) bool     { return ownerPattern.MatchString(id) }
func validSessionID(id string) bool { return sessionPattern.MatchString(id) }

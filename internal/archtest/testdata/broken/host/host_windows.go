package host

import "example.com/broken/secret"

func elsewhere(v secret.Value) []byte { return v.Reveal() } // want

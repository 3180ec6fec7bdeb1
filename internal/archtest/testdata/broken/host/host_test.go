package host

import (
	"example.com/broken/secret"

	_ "github.com/stretchr/testify/assert"
)

func test(v secret.Value) []byte { return v.Reveal() }

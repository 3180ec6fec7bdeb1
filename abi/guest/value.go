package guest

import "github.com/sbxhost/sbxhost/abi"

// Value is a parsed JSON value of a vendor's reply.
type Value = abi.Value

// Parse reads one JSON document. It uses no reflection: encoding/json costs a
// guest ten times as much, and a megabyte of code.
func Parse(doc []byte) (Value, error) { return abi.Parse(doc) }

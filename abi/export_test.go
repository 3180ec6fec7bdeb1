package abi

// ParseShared is Parse as it is in a plugin.
func ParseShared(doc []byte) (Value, error) {
	d := decoder{data: doc, text: string(doc)}
	v, err := d.value()
	if err != nil {
		return Value{}, err
	}
	return v, d.end()
}

// DecodeCreateShared is CreateRequest.DecodeJSON as it is in a plugin.
func DecodeCreateShared(v *CreateRequest, doc []byte) error {
	d := decoder{data: doc, text: string(doc)}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

// Plain is the scan for bytes of a string that need attention, for bytes and for
// text.
func Plain(b []byte, i int) (int, int) { return plain(b, i), plainText(string(b), i) }

package snapshot

// PrivatePages asks the kernel in one of its two ways; ok is false where this
// kernel has not got it.
func PrivatePages(m *Memory, scan bool) (list []int, ok bool) {
	known := pagemap()
	if known == nil {
		return nil, false
	}
	p := &pages{fd: known.fd, scan: scan}
	if !p.tells() {
		return nil, false
	}
	ok = p.changed(m.Bytes(), func(page int) bool {
		list = append(list, page)
		return true
	})
	return list, ok
}

// Aware reports whether memories know by themselves which pages are private.
func Aware() bool { return pagemap() != nil && faultsTell() }

// Sure reports whether the private pages are known without looking.
func (m *Memory) Sure() bool { return m.known && m.exact }

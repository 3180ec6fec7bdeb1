package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// The layout of a bbolt file, version 2: pages of equal size; pages 0 and 1 hold
// meta documents, of which the one with the higher transaction counts. bbolt
// trusts what it maps and panics, or is killed by the system, where a page is
// missing or wrong; so the file is read here first, by plain reads.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageBranch   = 0x01
	pageLeaf     = 0x02
	pageMeta     = 0x04
	pageFreelist = 0x10

	pageHeader  = 16 // id, flags, count, overflow
	elementSize = 16 // of a branch or a leaf
	bucketSize  = 16 // root page, sequence
	leafBucket  = 0x01
	noFreelist  = ^uint64(0)
	maxDepth    = 32
	largestFile = 16 << 30
)

// order is the machine's: bbolt writes its structures as they are in memory.
var order = binary.NativeEndian

// meta is one meta document.
type meta struct {
	pageSize, root, freelist, high, tx uint64
	page                               [pageHeader + 64]byte // with its page's header
}

// walk is one reading of a file.
type walk struct {
	in      io.ReaderAt
	meta    meta
	seen    map[uint64]bool
	buckets map[string]map[string][]byte
}

// content is what a ledger holds.
type content struct {
	records []ledger.Record
	sums    map[string]checksum // by attempt
	seal    seal
	used    int64 // of the file, in bytes
	undo    *undo // nil: the file is whole
}

// undo is how a file becomes what it was before a change that was not finished.
type undo struct {
	at   int64
	page []byte
	why  *DamageError
}

// readFile checks every page of a ledger and returns what it holds. Errors are
// *DamageError without a path, Unsupported for a newer version, or what reading
// the file gave.
//
// Damage in the newest change alone is what a loss of power leaves, if there was
// one since: the content is then that before the change.
func readFile(in io.ReaderAt, size int64, boot checksum) (content, error) {
	newest, older, err := metas(in, size)
	if err != nil {
		return content{}, err
	}
	have, err := readTree(in, size, newest)
	var damaged *DamageError
	if !errors.As(err, &damaged) || older.tx+1 != newest.tx {
		return have, err
	}
	before, berr := readTree(in, size, older)
	if berr != nil || !otherBoot(before.seal.boot, boot) {
		return content{}, err
	}
	// The older document in the newer one's place: its page number stays.
	page := bytes.Clone(older.page[:])
	copy(page[:8], newest.page[:8])
	before.undo = &undo{at: int64(order.Uint64(page) * newest.pageSize), page: page, why: damaged}
	return before, nil
}

// otherBoot reports whether the machine is known to have started anew.
func otherBoot(then, now checksum) bool {
	return then != checksum{} && now != checksum{} && then != now
}

// readTree reads what one meta document stands for.
func readTree(in io.ReaderAt, size int64, m meta) (content, error) {
	w := &walk{in: in, meta: m, seen: map[uint64]bool{}, buckets: map[string]map[string][]byte{}}
	switch {
	case m.high < 2 || m.high > uint64(size)/m.pageSize: //nolint:gosec // a file's size
		return content{}, damage("the file", "it was cut short: it has %d bytes and must have %d pages of %d", size, m.high, m.pageSize)
	case m.freelist == noFreelist:
		return content{}, damage("the meta page", "it names no list of free pages")
	}
	if err := w.tree(w.meta.root, nil, 0, new([]byte), nil); err != nil {
		return content{}, err
	}
	if err := w.freelist(); err != nil {
		return content{}, err
	}
	have, err := w.records()
	have.used = int64(m.high * m.pageSize) //nolint:gosec // within the file's size
	return have, err
}

// metas reads both meta documents.
func metas(in io.ReaderAt, size int64) (newest, older meta, err error) {
	switch {
	case size == 0:
		return meta{}, meta{}, damage("the file", "it is empty; a ledger never is")
	case size > largestFile:
		return meta{}, meta{}, damage("the file", "it is larger than a ledger can be")
	}
	first, err := metaAt(in, 0, 0)
	if err != nil {
		return meta{}, meta{}, err
	}
	second, err := metaAt(in, 1, int64(first.pageSize))
	if err != nil {
		return meta{}, meta{}, err
	}
	if first.pageSize != second.pageSize {
		return meta{}, meta{}, damage("page 1", "its page size is not that of page 0")
	}
	if second.tx > first.tx {
		return second, first, nil
	}
	return first, second, nil
}

func metaAt(in io.ReaderAt, id uint64, at int64) (meta, error) {
	where := fmt.Sprintf("page %d", id)
	var b [pageHeader + 64]byte
	if _, err := in.ReadAt(b[:], at); err != nil {
		return meta{}, readFailed(where, err)
	}
	d := b[pageHeader:]
	m := meta{page: b, pageSize: uint64(order.Uint32(d[8:])), root: order.Uint64(d[16:]), freelist: order.Uint64(d[32:]),
		high: order.Uint64(d[40:]), tx: order.Uint64(d[48:])}
	h := fnv.New64a()
	_, _ = h.Write(d[:56])
	switch {
	case order.Uint32(d) != boltMagic:
		return meta{}, damage(where, "this is no ledger, or its beginning is lost")
	case order.Uint32(d[4:]) != boltVersion:
		return meta{}, damage(where, "its format is unknown")
	case order.Uint64(d[56:]) != h.Sum64():
		return meta{}, damage(where, "its checksum is wrong")
	case order.Uint64(b[:]) != id || order.Uint16(b[8:]) != pageMeta:
		return meta{}, damage(where, "it is another page")
	case m.pageSize < 1024 || m.pageSize > 1<<16 || m.pageSize&(m.pageSize-1) != 0:
		return meta{}, damage(where, "its page size is impossible")
	}
	return m, nil
}

func readFailed(where string, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // io.ReaderAt's own
		return damage(where, "%v", errShort)
	}
	return &provider.Error{Code: provider.Unavailable, Op: "ledger", Message: "the ledger cannot be read: " + where, Err: err, Applied: provider.AppliedNo}
}

// page reads a page with its overflow, once.
func (w *walk) page(id uint64) (data []byte, flags uint16, err error) {
	where := fmt.Sprintf("page %d", id)
	if id < 2 || id >= w.meta.high {
		return nil, 0, damage(where, "there is no such page")
	}
	var head [pageHeader]byte
	at := int64(id * w.meta.pageSize) //nolint:gosec // below the file's size
	if _, err := w.in.ReadAt(head[:], at); err != nil {
		return nil, 0, readFailed(where, err)
	}
	over := uint64(order.Uint32(head[12:]))
	switch {
	case order.Uint64(head[:]) != id:
		return nil, 0, damage(where, "it says that it is page %d", order.Uint64(head[:]))
	case id+over >= w.meta.high:
		return nil, 0, damage(where, "it is longer than the file")
	}
	for i := id; i <= id+over; i++ {
		if w.seen[i] {
			return nil, 0, damage(where, "it is used twice")
		}
		w.seen[i] = true
	}
	data = make([]byte, (over+1)*w.meta.pageSize)
	if _, err := w.in.ReadAt(data, at); err != nil {
		return nil, 0, readFailed(where, err)
	}
	return data, order.Uint16(head[8:]), nil
}

// tree reads the pages below id. bucket is nil at the root, whose leaves are the
// buckets. first is what the page above, if there is one, says that its first key
// is: bbolt takes its word for it.
func (w *walk) tree(id uint64, bucket map[string][]byte, depth int, last *[]byte, first []byte) error {
	if depth > maxDepth {
		return damage(fmt.Sprintf("page %d", id), "it lies too deep")
	}
	data, flags, err := w.page(id)
	if err != nil {
		return err
	}
	where := fmt.Sprintf("page %d", id)
	switch flags {
	case pageLeaf:
		return w.leaf(where, data, bucket, depth, last, first)
	case pageBranch:
		return w.branch(where, data, bucket, depth, last, first)
	}
	return damage(where, "it is neither branch nor leaf")
}

func (w *walk) branch(where string, data []byte, bucket map[string][]byte, depth int, last *[]byte, first []byte) error {
	n := int(order.Uint16(data[10:]))
	if n == 0 || pageHeader+n*elementSize > len(data) {
		return damage(where, "its count is impossible")
	}
	for i := range n {
		at := pageHeader + i*elementSize
		key, err := part(where, data, at, order.Uint32(data[at:]), order.Uint32(data[at+4:]))
		if err != nil {
			return err
		}
		if i == 0 && first != nil && !bytes.Equal(first, key) {
			return damage(where, "%v", errFirst)
		}
		if err := w.tree(order.Uint64(data[at+8:]), bucket, depth+1, last, key); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) leaf(where string, data []byte, bucket map[string][]byte, depth int, last *[]byte, first []byte) error {
	n := int(order.Uint16(data[10:]))
	if pageHeader+n*elementSize > len(data) || n == 0 && first != nil {
		return damage(where, "its count is impossible")
	}
	for i := range n {
		at := pageHeader + i*elementSize
		pos, klen, vlen := order.Uint32(data[at+4:]), order.Uint32(data[at+8:]), order.Uint32(data[at+12:])
		key, err := part(where, data, at, pos, klen)
		if err != nil {
			return err
		}
		value, err := part(where, data, at+int(klen), pos, vlen)
		if err != nil {
			return err
		}
		switch {
		case klen == 0 || bytes.Compare(*last, key) >= 0:
			return damage(where, "its keys are out of order")
		case i == 0 && first != nil && !bytes.Equal(first, key):
			return damage(where, "%v", errFirst)
		}
		*last = bytes.Clone(key)
		isBucket := order.Uint32(data[at:])&leafBucket != 0
		switch {
		case bucket != nil && isBucket:
			return damage(where, "it holds a bucket where there is none")
		case bucket != nil:
			bucket[string(key)] = bytes.Clone(value)
		case !isBucket:
			return damage(where, "it holds something outside the buckets")
		default:
			if err := w.bucket(where, string(key), value, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// bucket reads one bucket, which lies in pages of its own or, when small, in its
// leaf.
func (w *walk) bucket(where, name string, value []byte, depth int) error {
	if len(value) < bucketSize {
		return damage(where, "a bucket is cut short")
	}
	content := map[string][]byte{}
	w.buckets[name] = content
	if root := order.Uint64(value); root != 0 {
		return w.tree(root, content, depth+1, new([]byte), nil)
	}
	inline := value[bucketSize:]
	if len(inline) < pageHeader || order.Uint16(inline[8:]) != pageLeaf {
		return damage(where, "a bucket's content is cut short")
	}
	return w.leaf(where, inline, content, depth+1, new([]byte), nil)
}

// part returns size bytes at offset pos from at.
func part(where string, data []byte, at int, pos, size uint32) ([]byte, error) {
	from := int64(at) + int64(pos)
	if from > int64(len(data)) || from+int64(size) > int64(len(data)) {
		return nil, damage(where, "an entry reaches beyond it")
	}
	return data[from : from+int64(size)], nil
}

// freelist checks that no page is both free and in use: a page that is would be
// overwritten.
func (w *walk) freelist() error {
	data, flags, err := w.page(w.meta.freelist)
	if err != nil {
		return err
	}
	where := fmt.Sprintf("page %d", w.meta.freelist)
	if flags != pageFreelist {
		return damage(where, "it is not the list of free pages")
	}
	ids := data[pageHeader:]
	n := uint64(order.Uint16(data[10:]))
	if n == 0xFFFF {
		if len(ids) < 8 {
			return damage(where, "it is cut short")
		}
		n, ids = order.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids))/8 {
		return damage(where, "its count is impossible")
	}
	for i := range n {
		id := order.Uint64(ids[8*i:])
		if id < 2 || id >= w.meta.high {
			return damage(where, "it names a page that is not there")
		}
		if w.seen[id] {
			return damage(where, "page %d is both free and in use", id)
		}
		w.seen[id] = true
	}
	return nil
}

// records decodes what the walk found.
func (w *walk) records() (content, error) {
	format, ok := w.buckets[string(bucketFormat)]
	version, stored := string(format[string(keyVersion)]), format[string(keySeal)]
	var out content
	switch {
	case !ok:
		return content{}, damage("the file", "it is a database, but no ledger")
	case version == oldVersion:
	case version == fileVersion:
		// Pages that an older change left behind make a whole tree, too.
		if out.seal.tx, out.seal.boot, ok = changeOf(stored); !ok || out.seal.tx != w.meta.tx {
			return content{}, damage("the records", "they are not of the newest change")
		}
	case !isVersion(version) || w.isOurs(stored):
		return content{}, damage("the file", "its version is not one")
	default:
		return content{}, newer()
	}
	if err := w.decode(&out); err != nil {
		return content{}, err
	}
	if !bytes.Equal(stored, out.seal.encode()) {
		return content{}, damage("the records", "%d are there, and they are not those that were written", len(out.records))
	}
	return out, nil
}

// isVersion reports whether a version could be one. What a page that is half written
// holds in its place is not believed.
func isVersion(v string) bool {
	n, err := strconv.ParseUint(v, 10, 32)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == v
}

// isOurs reports whether the seal is that of the newest change, as this version makes
// them: then no newer version wrote the file, whatever it says. The records are not
// asked: some of a change that is not finished are missing.
func (w *walk) isOurs(stored []byte) bool {
	tx, _, ok := changeOf(stored)
	if !ok || tx != w.meta.tx {
		return false
	}
	body := stored[:sealSize-sumSize]
	own := sum(valueVersion, "", body)
	return bytes.Equal(stored[len(body):], own[:])
}

// decode decodes the records into out, and counts them in its seal.
func (w *walk) decode(out *content) error {
	values, ok := w.buckets[string(bucketRecords)]
	if !ok {
		return damage("the file", "the records are missing")
	}
	out.records, out.sums = make([]ledger.Record, 0, len(values)), make(map[string]checksum, len(values))
	for key, value := range values {
		r, c, err := decode(key, value)
		switch {
		case provider.CodeOf(err) == provider.Unsupported:
			return err
		case err != nil:
			return damage(fmt.Sprintf("the record %q", shown(key)), "%v", err)
		}
		out.records = append(out.records, r)
		out.sums[key], out.seal = c, out.seal.with(c, 1)
	}
	return nil
}

// shown cuts a key that may be anything.
func shown(key string) string { return key[:min(len(key), 64)] }

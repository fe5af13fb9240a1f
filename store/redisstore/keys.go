package redisstore

import (
	"strings"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// KeyVersion is the version of the keys and their values that this release works
// with. A record is a hash:
//
//	s  state          c  claim id      f  fence
//	a  attempt        t  takeovers     x  1: the latest claim is a takeover
//	r  claimed: the end of the lease; waiting: when it is due; ms
//	o  owner          p  fingerprint   w  reason
//	y  payload        v  result; there or not
//
// Beside the records are a hash with their number in each state, a sorted set of
// those that expire, by when, and a sorted set for each state that can be listed.
const KeyVersion = 1

// keys are the names of a store's keys.
type keys struct {
	meta    string
	books   []string // as prelude.lua wants them
	listing map[oncepipe.State]string
	records string // begins those of the records
}

func newKeys(prefix string) keys {
	tag := "{" + prefix + "}:"
	k := keys{meta: tag + "meta", records: tag + "record:", listing: map[oncepipe.State]string{
		oncepipe.StateWaiting: tag + "waiting", oncepipe.StateFailed: tag + "failed", oncepipe.StateUnknown: tag + "unknown",
	}}
	k.books = []string{
		tag + "counts", tag + "expiries",
		k.listing[oncepipe.StateWaiting], k.listing[oncepipe.StateFailed], k.listing[oncepipe.StateUnknown],
	}
	return k
}

// The name of a record is its namespace and its key with nsEnd between them. For
// any bytes whatever, names are different, and in the order of the namespaces and
// the keys.
const nsEnd = "\x00\x01"

var nsEscapes = strings.NewReplacer("\x00", "\x00\xff")

// namespace begins the names of the records of a namespace in its stored form.
func (k keys) namespace(ns string) string { return k.records + nsEscapes.Replace(ns) + nsEnd }

func (k keys) record(id record.ID) string { return k.namespace(id.Namespace) + id.Key }

// id is the record of a name.
func (k keys) id(name string) record.ID {
	ns, key, _ := strings.Cut(strings.TrimPrefix(name, k.records), nsEnd)
	return record.ID{Namespace: strings.ReplaceAll(ns, "\x00\xff", "\x00"), Key: key}
}

// with is the books and the records of ids.
func (k keys) with(n int, id func(i int) oncepipe.RecordID) []string {
	all := make([]string, 0, len(k.books)+n)
	all = append(all, k.books...)
	for i := range n {
		all = append(all, k.record(record.Stored(id(i))))
	}
	return all
}

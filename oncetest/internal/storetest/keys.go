package storetest

import (
	"fmt"
	"strings"

	"github.com/oncepipe/oncepipe"
)

// strangeKeys are all different, and alike for a store that folds, trims,
// normalises, truncates or mistakes bytes for characters.
func strangeKeys() []string {
	long := strings.Repeat("0123456789abcdef", 64) // 1 kB
	keys := []string{
		"key", "Key", "KEY", "key ", " key", "key\t", "key\n", "key  ",
		"key\x00", "key\x00\x00", "\x00key", "key\x00a", "\x00",
		"caf\u00e9", "cafe\u0301", "cafe", "CAF\u00c9", // precomposed, combining, without accent
		"stra\u00dfe", "strasse", "\u0131", "i", "\u212a", "K", "k",
		"\xff", "\xfe", "\xc3", "\xc3\x28", "\xed\xa0\x80", "\ufffd", // not UTF-8, and what decoders make of it
		"\u200b", "\u200bkey", "\u00a0", "\u202ekey",
		"%", "_", "k%", "k_y", "'", "''", "\\", "\\\\", "\\x6b6579", "0x6b6579", "x'6b6579'",
		"1", "01", "1.0", "1e0", "+1", "null", "NULL", "true", "p/s", "/", "//",
		"a/b", "a|b", "a:b", "a\x1fb",
		long, long + "a", long + "b", long + "a ", strings.ToUpper(long),
		strings.Repeat("x", 10<<10), strings.Repeat("x", 10<<10-1) + "y", strings.Repeat("x", 10<<10+1),
		strings.Repeat("\u20ac", 300), strings.Repeat("\u20ac", 299) + "\u20ad", strings.Repeat("\u20ac", 85), strings.Repeat("\u20ac", 86),
		oncepipe.StorageKey(long), oncepipe.StorageKey(long + "a"), // what a long key is stored as is no way to it
	}
	for _, n := range []int{63, 64, 127, 128, 191, 254, 255, 256, 257, 511, 512, 767, 768} {
		keys = append(keys, strings.Repeat("n", n))
	}
	return keys
}

var keyRules = []Rule{
	{"S6.1", "R76 keys are compared byte by byte", func(s *subject) {
		keys := strangeKeys()
		reqs := make([]oncepipe.ClaimRequest, len(keys))
		for i, key := range keys {
			reqs[i] = request(key)
		}
		for i, a := range s.claims(reqs...) {
			if a.Status != oncepipe.ClaimAcquired {
				s.Errorf("key %d (%.40q): %v", i, keys[i], a.Status)
			}
		}
		for i, r := range reqs {
			s.completion(true, oncepipe.Completion{RecordID: r.RecordID, Claim: r.Claim, Result: fmt.Append(nil, i), HasResult: true})
		}
		for i, key := range keys {
			if a := s.claim(oncepipe.ClaimCompleted, request(key)); string(a.Result) != fmt.Sprint(i) {
				s.Errorf("key %d (%.40q) has the result of key %s", i, key, a.Result)
			}
			if rec := s.lookup(key); string(rec.Result) != fmt.Sprint(i) {
				s.Errorf("key %d (%.40q): record %+v", i, key, rec)
			}
		}
		for i, key := range keys {
			s.forget(true, key, false)
			s.state(key, oncepipe.StateAbsent)
			if i+1 < len(keys) {
				s.state(keys[i+1], oncepipe.StateCompleted)
			}
		}
	}},
	{"S6.2", "R77 key belongs to its namespace", func(s *subject) {
		namespaces := []string{"", "a", "A", "a ", "a\x00", "\xff", strings.Repeat("n", 300), strings.Repeat("n", 301), "p/s"}
		var reqs []oncepipe.ClaimRequest
		for _, ns := range namespaces {
			r := request("key")
			r.Namespace = ns
			reqs = append(reqs, r)
		}
		for i, a := range s.claims(reqs...) {
			if a.Status != oncepipe.ClaimAcquired {
				s.Errorf("namespace %.20q: %v", namespaces[i], a.Status)
			}
		}
		for i, r := range reqs {
			s.completion(true, oncepipe.Completion{RecordID: r.RecordID, Claim: r.Claim, Result: fmt.Append(nil, i), HasResult: true})
		}
		for i, r := range reqs {
			r.Claim = oncepipe.NewClaimID()
			if a := s.claim(oncepipe.ClaimCompleted, r); string(a.Result) != fmt.Sprint(i) {
				s.Errorf("namespace %.20q has the result of %s", namespaces[i], a.Result)
			}
		}
	}},
	{"S6.3", "R77 namespace and key are not run together", func(s *subject) {
		for _, r := range []oncepipe.RecordID{
			{Namespace: "a", Key: "bc"},
			{Namespace: "ab", Key: "c"},
			{Namespace: "", Key: "abc"},
			{Namespace: "a/b", Key: "c"},
			{Namespace: "a", Key: "b/c"},
			{Namespace: "a\x00b", Key: "c"},
			{Namespace: "a", Key: "b\x00c"},
		} {
			req := request("")
			req.RecordID = r
			s.claim(oncepipe.ClaimAcquired, req)
		}
	}},
}

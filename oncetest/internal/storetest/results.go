package storetest

import (
	"bytes"

	"github.com/oncepipe/oncepipe"
)

var resultRules = []Rule{
	{"S4.1", "result may be nil, empty, zero or absent", func(s *subject) {
		for _, c := range []struct {
			key    string
			result []byte
			has    bool
		}{
			{"nil", nil, true},
			{"empty", []byte{}, true},
			{"zero", []byte("0"), true},
			{"null", []byte("null"), true},
			{"bytes", []byte("\x00\xff'\n\\"), true},
			{"absent", nil, false},
			{"not meant", []byte("no"), false},
		} {
			s.completion(true, oncepipe.Completion{RecordID: id(c.key), Claim: s.acquire(c.key), Result: c.result, HasResult: c.has})
			want := c.result
			if !c.has {
				want = nil
			}
			if a := s.claim(oncepipe.ClaimCompleted, request(c.key)); a.HasResult != c.has || !bytes.Equal(a.Result, want) {
				s.Errorf("%s: claim says %q, %v", c.key, a.Result, a.HasResult)
			}
			if r := s.lookup(c.key); r.HasResult != c.has || !bytes.Equal(r.Result, want) {
				s.Errorf("%s: lookup says %q, %v", c.key, r.Result, r.HasResult)
			}
		}
	}},
	{"S4.2", "result comes with completed keys only", func(s *subject) {
		for _, state := range presentStates {
			if state == oncepipe.StateCompleted {
				continue
			}
			s.intoState(state.String(), "", state)
			if a := s.claims(request(state.String()))[0]; a.HasResult || len(a.Result) != 0 {
				s.Errorf("%v: %+v", state, a)
			}
			if r := s.lookup(state.String()); r.HasResult || len(r.Result) != 0 {
				s.Errorf("%v: %+v", state, r)
			}
		}
	}},
	{"S4.3", "R51 result that is too large doesn't fail the completion", func(s *subject) {
		if s.MaxResult == 0 {
			return // it takes any size
		}
		fits, large := bytes.Repeat([]byte("x"), s.MaxResult), bytes.Repeat([]byte("x"), s.MaxResult+1)
		s.complete(true, "fits", s.acquire("fits"), string(fits))
		if a := s.claim(oncepipe.ClaimCompleted, request("fits")); !a.HasResult || !bytes.Equal(a.Result, fits) {
			s.Errorf("fits: %d bytes, %v", len(a.Result), a.HasResult)
		}
		claim := s.acquire("large")
		s.complete(true, "large", claim, string(large))
		s.complete(true, "large", claim, string(large))
		if a := s.claim(oncepipe.ClaimCompleted, request("large")); a.HasResult || len(a.Result) != 0 {
			s.Errorf("large: %d bytes, %v", len(a.Result), a.HasResult)
		}
		unknown := "unknown"
		s.intoState(unknown, "", oncepipe.StateUnknown)
		s.resolve(true, oncepipe.Resolution{RecordID: id(unknown), To: oncepipe.StateCompleted, Result: large, HasResult: true})
		if a := s.claim(oncepipe.ClaimCompleted, request(unknown)); a.HasResult {
			s.Errorf("resolved: a result")
		}
	}},
	{"S4.4", "bytes are the store's own", func(s *subject) {
		result, payload := []byte("result"), []byte("payload")
		s.completion(true, oncepipe.Completion{RecordID: id("r"), Claim: s.acquire("r"), Result: result, HasResult: true})
		s.release(true, oncepipe.ReleaseRequest{RecordID: id("p"), Claim: s.acquire("p"), To: oncepipe.ToFailed, Payload: payload})
		clear(result)
		clear(payload)
		for range 2 { // the second time after the answers of the first were overwritten
			a, r, p := s.claim(oncepipe.ClaimCompleted, request("r")), s.lookup("r"), s.lookup("p")
			if string(a.Result) != "result" || string(r.Result) != "result" || string(p.Payload) != "payload" {
				s.Errorf("%q, %q, %q", a.Result, r.Result, p.Payload)
			}
			clear(a.Result)
			clear(r.Result)
			clear(p.Payload)
		}
	}},
	{"S4.5", "texts are kept as they are", func(s *subject) {
		text := "it's \"quoted\" \\ %s ? $1 :a \n ünï 😀"
		req := request("k")
		req.Owner = text
		s.claim(oncepipe.ClaimAcquired, req)
		s.release(true, oncepipe.ReleaseRequest{RecordID: id("k"), Claim: req.Claim, To: oncepipe.ToFailed, Reason: text, Payload: []byte("\x00\xff")})
		if r := s.lookup("k"); r.Owner != text || r.Reason != text || string(r.Payload) != "\x00\xff" {
			s.Errorf("record %+v", r)
		}
	}},
	{"S4.6", "texts that no text column takes do no harm", func(s *subject) {
		text := "NUL \x00 and invalid \xff\xfe UTF-8"
		req := request("k")
		req.Owner = text
		s.claim(oncepipe.ClaimAcquired, req)
		s.release(true, oncepipe.ReleaseRequest{RecordID: id("k"), Claim: req.Claim, To: oncepipe.ToFailed, Reason: text})
		s.state("k", oncepipe.StateFailed)
	}},
}

package oncetest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// steps of a run with one step and its acknowledgement, twice.
var plainSteps = []Faults{atStep, atAck, atStep, atAck}

func TestSchedule_Text(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		s := randomSchedule(rnd, AllFaults, rapid.IntRange(1, 9).Draw(t, "messages"), rapid.IntRange(0, 20).Draw(t, "steps"))
		back, err := parseSchedule(s.String())
		if err != nil || back.messages != s.messages || !slices.Equal(back.events, s.events) {
			t.Fatalf("%s was read as %s, %v", s, back, err)
		}
	})
	for _, text := range []string{
		"", "x", "0:", "101:", "1:copy", "1:copy@", "1:copy@0", "1:copy@-1", "1:late-copy@1", "1:nothing@1", "1:copy@1,", ":copy@1", "1:copy@1@2",
	} {
		if s, err := parseSchedule(text); err == nil {
			t.Errorf("%q was read as %s", text, s)
		}
	}
}

func FuzzParseSchedule(f *testing.F) {
	f.Add("2:copy@3,late-copy")
	f.Add("1:")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSchedule(text)
		if err != nil {
			return
		}
		back, err := parseSchedule(s.String())
		if err != nil || back.String() != s.String() {
			t.Errorf("%q became %s and then %s, %v", text, s, back, err)
		}
	})
}

// All kinds at all steps where they fit are tried alone, and each pair once.
func TestSchedule_NextIsComplete(t *testing.T) {
	one := schedule{messages: 1}.next(AllFaults, plainSteps)
	seen := map[string]bool{}
	for _, s := range one {
		seen[s.String()] = true
	}
	want := 0
	for i, fits := range plainSteps {
		for _, kind := range fits.each() {
			want++
			if e := (event{i + 1, kind}); !seen["1:"+e.String()] {
				t.Errorf("%s is not tried", e)
			}
		}
	}
	for _, kind := range atNone.each() {
		want++
		if !seen["1:"+kind.String()] {
			t.Errorf("%s is not tried", kind)
		}
	}
	if len(one) != want || len(seen) != want {
		t.Errorf("%d schedules, %d different ones, want %d", len(one), len(seen), want)
	}
	pairs := map[string]bool{}
	for _, s := range one {
		for _, two := range s.next(AllFaults, plainSteps) {
			if pairs[two.String()] {
				t.Errorf("%s comes twice", two)
			}
			pairs[two.String()] = true
		}
	}
	if n := want * (want - 1) / 2; len(pairs) != n {
		t.Errorf("%d pairs, want %d", len(pairs), n)
	}
}

func TestSchedule_NextKeepsToWhatIsAllowed(t *testing.T) {
	for _, s := range (schedule{messages: 1}).next(Crashes|LateCopy, plainSteps) {
		if s.events[0].kind&(Crashes|LateCopy) == 0 {
			t.Errorf("%s is not allowed", s)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		for _, e := range randomSchedule(rnd, Duplicates, 2, 5).events {
			if e.kind&Duplicates == 0 {
				t.Fatalf("%s is not allowed", e)
			}
		}
	}
}

// However one goes on to smaller schedules, there is an end.
func TestSchedule_ShrinkingEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		s := randomSchedule(rnd, AllFaults, 3, 10)
		for range 1000 {
			smaller := s.smaller()
			if len(smaller) == 0 {
				return
			}
			s = rapid.SampledFrom(smaller).Draw(t, "smaller")
		}
		t.Fatalf("no end: %s", s)
	})
}

func TestFaults_Names(t *testing.T) {
	names := map[string]bool{}
	for _, kind := range AllFaults.each() {
		back, err := faultNamed(kind.String())
		if err != nil || back != kind || names[kind.String()] {
			t.Errorf("%d is called %q, which is %d, %v", kind, kind, back, err)
		}
		names[kind.String()] = true
		if places := kind & (atAck | atStep | atNone); places != kind {
			t.Errorf("%s fits nowhere", kind)
		}
		if kind&atNone != 0 && kind&(atAck|atStep) != 0 {
			t.Errorf("%s needs a step and none", kind)
		}
	}
	sets := Duplicates | TwoProcesses | Restarts | Failures | Crashes | Cuts | Overflow
	if sets != AllFaults {
		t.Errorf("%s is in no set", AllFaults&^sets)
	}
}

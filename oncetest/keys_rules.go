package oncetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"
)

// keyChecks is what the checks of all key functions have in common.
type keyChecks[M any] struct {
	key     func(M) string
	show    func(M) string
	own     []keyMessage[M]              // the user's, one for each identity
	cases   func() ([]keyCase[M], error) // made when they are first asked for
	compare []string                     // the rules of the cases, in order
	without []string                     // rules the user left out
	absent  map[string]string            // by rule: why there is nothing to check
}

// keyMessage builds a message anew at each call.
type keyMessage[M any] struct {
	name  func() string
	made  bool // by the kit, from values that the function may refuse
	build func() M
}

// keyCase is a list of messages that all have one key, or each another.
type keyCase[M any] struct {
	rule     string
	same     bool
	messages []keyMessage[M]
}

// ask calls the function in a goroutine, since Goexit ends the one it is called in.
func (c *keyChecks[M]) ask(by keyMessage[M], m M) keyAsked[M] {
	var a keyAnswer
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				a.died = fmt.Sprint("panic: ", r)
			}
		}()
		a.died = "runtime.Goexit"
		a.key = c.key(m)
		a.died = ""
	}()
	<-done
	return keyAsked[M]{c: c, by: by, m: m, a: a}
}

func (c *keyChecks[M]) leaveOut(why string, rules ...string) {
	for _, r := range rules {
		c.absent[r] = why
	}
}

// steadyRules are the rules for one message at a time.
var steadyRules = []string{"panic", "empty", "read only", "repeat", "fresh copy", "concurrent", "clock"}

const twoProcesses = "two processes"

func (c *keyChecks[M]) checkWithout() error {
	for _, rule := range c.without {
		if rule != twoProcesses && !slices.Contains(steadyRules, rule) && !slices.Contains(c.compare, rule) {
			return fmt.Errorf("oncetest: Without names %q, which is no rule for this function", rule)
		}
		c.absent[rule] = "left out by Without"
	}
	return nil
}

// test runs each rule as a subtest.
func (c *keyChecks[M]) test(t *testing.T) {
	isSteady := true
	for _, rule := range steadyRules {
		isSteady = t.Run(rule, func(t *testing.T) { c.report(t, rule, c.checkSteady) }) && isSteady
	}
	t.Run(twoProcesses, func(t *testing.T) {
		c.report(t, twoProcesses, func(string) *keyFindings { return c.otherProcess(t) })
	})
	for _, rule := range c.compare {
		t.Run(rule, func(t *testing.T) {
			if !isSteady {
				t.Skip("nothing to compare: the rules for one message don't hold")
			}
			c.report(t, rule, c.checkCases)
		})
	}
}

func (c *keyChecks[M]) report(t *testing.T, rule string, check func(rule string) *keyFindings) {
	t.Helper()
	if why := c.absent[rule]; why != "" {
		t.Skip(why)
	}
	found := check(rule)
	switch {
	case found.first != nil:
		t.Error(found.err())
	case c.absent[rule] != "": // only the check could tell
		t.Skip(c.absent[rule])
	case found.checked == 0:
		t.Skip("nothing to check it with: " + found.why)
	}
}

func (c *keyChecks[M]) check() error {
	var errs []error
	told := map[string]bool{} // a panic is met under many rules
	run := func(rules []string, check func(rule string) *keyFindings) {
		for _, rule := range rules {
			if c.absent[rule] != "" {
				continue
			}
			if found := check(rule); !told[found.rule] {
				told[found.rule] = found.first != nil
				errs = append(errs, found.err())
			}
		}
	}
	run(steadyRules, c.checkSteady)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	run(c.compare, c.checkCases)
	return errors.Join(errs...)
}

// checkSteady asks for each of the user's messages by itself.
func (c *keyChecks[M]) checkSteady(rule string) *keyFindings {
	found := &keyFindings{}
	each := func(judge func(found *keyFindings, own keyMessage[M])) func(found *keyFindings) {
		return func(found *keyFindings) {
			for _, own := range c.own {
				judge(found, own)
			}
		}
	}
	judge := map[string]func(found *keyFindings){
		"panic": each(c.lives), "empty": each(c.hasKey), "read only": each(c.readsOnly),
		"repeat": each(c.repeats), "fresh copy": each(c.ignoresAddress),
		"concurrent": c.concurs, "clock": c.ignoresClock,
	}[rule]
	err := inBubble(func() { judge(found) })
	if err != nil { // of Message or Build
		found.add("panic", err.Error())
	}
	return found
}

func (c *keyChecks[M]) lives(found *keyFindings, own keyMessage[M]) {
	found.checked++
	if q := c.ask(own, own.build()); q.a.died != "" {
		found.add("panic", "the function gave no key", q)
	}
}

func (c *keyChecks[M]) hasKey(found *keyFindings, own keyMessage[M]) {
	found.checked++
	if q := c.ask(own, own.build()); q.a == (keyAnswer{}) {
		found.add("empty", "a message has no key", q)
	}
}

// twins builds a message twice. What is made by chance each time can't be compared.
func (c *keyChecks[M]) twins(found *keyFindings, own keyMessage[M]) (m, twin M, ok bool) {
	m, twin = own.build(), own.build()
	ok = reflect.DeepEqual(m, twin)
	if ok {
		found.checked++
	} else {
		found.why = "each is built otherwise every time"
	}
	return m, twin, ok
}

func (c *keyChecks[M]) readsOnly(found *keyFindings, own keyMessage[M]) {
	m, twin, ok := c.twins(found, own)
	if !ok {
		return
	}
	if q := c.ask(own, m); !reflect.DeepEqual(m, twin) {
		before := q
		before.m = twin
		found.add("read only", "the function changed its message, shown before and after", before, q)
	}
}

// rounds makes up for few messages with more calls for each, so that what is
// different now and then is seen.
func (c *keyChecks[M]) rounds() int { return max(4, 128/len(c.own)) }

func (c *keyChecks[M]) repeats(found *keyFindings, own keyMessage[M]) {
	m := own.build()
	c.again(found, "repeat", "called again, the function says something else", own, m, func() M { return m })
}

func (c *keyChecks[M]) ignoresAddress(found *keyFindings, own keyMessage[M]) {
	if m, _, ok := c.twins(found, own); ok {
		c.again(found, "fresh copy", "the same message at another address has another key", own, m, own.build)
	}
}

func (c *keyChecks[M]) again(found *keyFindings, rule, what string, own keyMessage[M], m M, next func() M) {
	first := c.ask(own, m)
	for range c.rounds() {
		found.checked++
		if q := c.ask(own, next()); q.a != first.a && first.a.died == "" {
			found.add(rule, what, first, q)
			return
		}
	}
}

// ignoresClock waits for all messages at once, since the fake clock ends in 2262.
func (c *keyChecks[M]) ignoresClock(found *keyFindings) {
	asked := make([]keyAsked[M], len(c.own))
	for i, own := range c.own {
		asked[i] = c.ask(own, own.build())
		found.checked++
	}
	for _, d := range []time.Duration{time.Nanosecond, time.Second, 36 * time.Hour, 400 * 24 * time.Hour} {
		time.Sleep(d)
		for _, before := range asked {
			if q := c.ask(before.by, before.m); q.a != before.a && before.a.died == "" {
				found.add("clock", fmt.Sprintf("%v later the message has another key", d), before, q)
			}
		}
	}
}

// concurs asks in several goroutines for what was asked in one before.
func (c *keyChecks[M]) concurs(found *keyFindings) {
	const workers = 4
	var asked [workers][]keyAsked[M] // each goroutine has its own messages
	for _, own := range c.own {
		q := c.ask(own, own.build())
		for w := range asked {
			q.m = own.build()
			asked[w] = append(asked[w], q)
		}
		found.checked++
	}
	var each [workers]keyFindings
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := range c.rounds() * len(c.own) {
				before := asked[w][(n+w)%len(c.own)]
				q := c.ask(before.by, before.m)
				if q.a != before.a && before.a.died == "" {
					each[w].add("concurrent", "called in several goroutines, the function says something else", before, q)
				}
			}
		})
	}
	wg.Wait()
	for _, one := range each {
		found.join(one)
	}
}

// checkCases compares messages with each other.
func (c *keyChecks[M]) checkCases(rule string) *keyFindings {
	found := &keyFindings{why: "the function refuses all that could be compared"}
	cases, err := c.cases()
	for _, k := range cases {
		if err == nil && c.absent[rule] == "" && k.rule == rule {
			err = inBubble(func() { c.judge(found, k) })
		}
	}
	if err != nil {
		found.add("panic", err.Error())
	}
	return found
}

func (c *keyChecks[M]) judge(found *keyFindings, k keyCase[M]) {
	var first *keyAsked[M]
	byKey := map[string]keyAsked[M]{}
	for _, by := range k.messages {
		if k.same && !by.made {
			time.Sleep(25*time.Hour + time.Second) // copies come later, and maybe on another day
		}
		q := c.ask(by, by.build())
		switch before, taken := byKey[q.a.key]; {
		case q.a.died != "" && by.made:
			found.add("panic", "the function gave no key", q)
		case q.a.died != "": // the rule "panic" has told
		case k.same && first == nil:
			first = &q
		case k.same:
			found.checked++
			if q.a != first.a {
				found.add(k.rule, "one message has two keys", first, q)
			}
		case q.a.key == "": // refused, or the rule "empty" has told
		case taken:
			found.checked++
			what := "two messages have one key"
			if reflect.DeepEqual(before.m, q.m) {
				what = "two messages that should differ are equal" // a fault of Message or Build
			}
			found.add(k.rule, what, before, q)
		default:
			byKey[q.a.key] = q
			if len(byKey) > 1 {
				found.checked++
			}
		}
	}
}

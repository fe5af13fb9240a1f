package oncetest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// KeyFunc is a key function and the messages to check it with. Key and one of
// Message, Build, Same and Differ are needed.
//
// These rules are checked. The names are those of the subtests of [Keys], and
// each failure begins with one.
//
//   - panic: it neither panics nor calls runtime.Goexit.
//   - empty: each message of Message, Same and Differ has a key.
//   - read only: it doesn't change its message.
//   - repeat, fresh copy, concurrent, clock: the key is the same when it is called
//     again; for the same message at another address; in several goroutines; days
//     later, by a fake clock.
//   - two processes: the key is the same in another process. [CheckKeys] leaves this
//     out, since it doesn't know what to start.
//   - metadata: the copies of a message have one key.
//   - distinct, big numbers: messages with different ids have different keys, also
//     where the ids are one number as a float64 or an int32.
//   - identity: another value of any field in Fields makes another key.
//   - delimiter: so does a value that holds what the function joins with, or the
//     escaped form of it: ("a|b", "c") is not ("a", "b|c").
//   - empty part, truncated, case, spaces, unicode: so does an empty value, one that
//     differs behind the first or before the last kilobyte, and one that differs
//     in case, in spaces, or in how an accent is composed.
//   - same, differ: the pairs in Same and Differ.
//
// An empty key is how a function refuses a message. It may refuse values that the
// kit made up. Where a rule has nothing to check, its subtest is skipped and says
// why. Where the key of one message isn't always the same, nothing is compared.
type KeyFunc[M any] struct {
	// Key is the function under test. It is called in synctest bubbles, by several
	// goroutines at once.
	Key func(M) string

	// Message builds the id-th message as it looks at its copy-th delivery: what a
	// broker changes with each delivery, such as a receipt handle, a delivery count or
	// the time of arrival, changes with copy, from 0 to 2. Other ids are other
	// messages. It is called in a synctest bubble, where time passes between copies,
	// and not in the test's goroutine, so it can't call t.Fatal.
	Message func(id, copy int) M

	// IDs are the ids that Message can build. Default: 0 to 31, math.MaxInt-1,
	// math.MaxInt, and a large one whose lower 32 bits are 0.
	IDs []int

	// Fields names the strings that are a message's identity, and Build makes a new
	// message from their values, which are any text.
	Fields []string
	Build  func(values []string) M

	// Same and Differ are further pairs of messages that must have one key, and two.
	Same, Differ [][2]M

	// Without names rules that don't hold, on purpose: "case" for a function that
	// folds it.
	Without []string
}

// Keys checks a key function, each rule in a subtest. For the rule "two
// processes" it starts the test binary again to run this test up to here.
// Call it from a test, not from a benchmark or a fuzz target.
func Keys[M any](t *testing.T, f KeyFunc[M]) {
	t.Helper()
	c, err := f.checks()
	if err != nil {
		t.Fatal(err)
	}
	c.test(t)
}

// CheckKeys is [Keys] for other test frameworks, without the rule "two
// processes". The error joins what is wrong, one error for each rule that is broken.
func CheckKeys[M any](f KeyFunc[M]) error {
	c, err := f.checks()
	if err != nil {
		return err
	}
	return c.check()
}

// keyCopies is how often each message of KeyFunc.Message is delivered.
const keyCopies = 3

// largeIDs collapse with each other as float64, and with 0 as int32, where int
// has 64 bits.
var largeIDs = []int{math.MaxInt - 1, math.MaxInt, math.MaxInt >> 32 << 32}

func (f KeyFunc[M]) checks() (*keyChecks[M], error) {
	switch {
	case f.Key == nil:
		return nil, errors.New("oncetest: KeyFunc without Key")
	case f.Message == nil && f.Build == nil && len(f.Same)+len(f.Differ) == 0:
		return nil, errors.New("oncetest: KeyFunc without messages: it needs Message, Build, Same or Differ")
	case (f.Build == nil) != (len(f.Fields) == 0):
		return nil, errors.New("oncetest: KeyFunc needs both of Fields and Build, or none")
	}
	c := &keyChecks[M]{
		key:     f.Key,
		show:    func(m M) string { return fmt.Sprintf("%+v", m) },
		compare: slices.Concat(messageRules, valueRules, pairRules),
		without: f.Without,
		absent:  map[string]string{},
	}
	c.cases = sync.OnceValues(func() ([]keyCase[M], error) {
		var list []keyCase[M]
		err := inBubble(func() { list = f.cases(c) })
		return list, err
	})
	f.own(c)
	return c, c.checkWithout()
}

var (
	messageRules = []string{"metadata", "distinct"}
	pairRules    = []string{"same", "differ"}
)

// own lists the user's messages, and says which rules have none.
func (f KeyFunc[M]) own(c *keyChecks[M]) {
	if f.Message == nil {
		c.leaveOut("KeyFunc has no Message", messageRules...)
	}
	if f.Build == nil {
		c.leaveOut("KeyFunc has no Fields and Build", valueRules...)
		if f.Message != nil && len(f.IDs) == 0 {
			delete(c.absent, "big numbers")
		}
	}
	if f.Message != nil {
		for _, id := range f.ids() {
			c.own = append(c.own, f.message(id, 0))
		}
	}
	for _, pair := range slices.Concat(f.Same, f.Differ) {
		for _, m := range pair {
			c.own = append(c.own, givenMessage(m))
		}
	}
	if len(c.own) == 0 {
		c.own = append(c.own, f.template().message(tokens(len(f.Fields))))
	}
	if len(f.Same) == 0 {
		c.leaveOut("KeyFunc has no Same", "same")
	}
	if len(f.Differ) == 0 {
		c.leaveOut("KeyFunc has no Differ", "differ")
	}
}

func (f KeyFunc[M]) ids() []int {
	if len(f.IDs) > 0 {
		return f.IDs
	}
	ids := make([]int, 32)
	for i := range ids {
		ids[i] = i
	}
	return ids
}

func (f KeyFunc[M]) message(id, delivery int) keyMessage[M] {
	return keyMessage[M]{
		name:  func() string { return fmt.Sprintf("message %d, copy %d", id, delivery) },
		build: func() M { return f.Message(id, delivery) },
	}
}

func givenMessage[M any](m M) keyMessage[M] {
	return keyMessage[M]{name: func() string { return "a given message" }, build: func() M { return m }}
}

func (f KeyFunc[M]) template() keyTemplate[M] {
	return keyTemplate[M]{fields: f.Fields, build: f.Build}
}

// cases makes what is compared. Where the values of fields are tried it has to
// ask the function, so it runs in a bubble.
func (f KeyFunc[M]) cases(c *keyChecks[M]) []keyCase[M] {
	var list []keyCase[M]
	if f.Message != nil {
		list = f.messageCases(c)
	}
	if f.Build != nil {
		list = append(list, valueCases(c, f.template())...)
	}
	for _, pair := range f.Same {
		list = append(list, keyCase[M]{rule: "same", same: true, messages: []keyMessage[M]{givenMessage(pair[0]), givenMessage(pair[1])}})
	}
	for _, pair := range f.Differ {
		list = append(list, keyCase[M]{rule: "differ", messages: []keyMessage[M]{givenMessage(pair[0]), givenMessage(pair[1])}})
	}
	return list
}

func (f KeyFunc[M]) messageCases(c *keyChecks[M]) []keyCase[M] {
	distinct := keyCase[M]{rule: "distinct"}
	var list []keyCase[M]
	vary := false
	for _, id := range f.ids() {
		delivered := keyCase[M]{rule: "metadata", same: true}
		for n := range keyCopies {
			delivered.messages = append(delivered.messages, f.message(id, n))
		}
		if !vary {
			first := delivered.messages[0].build()
			time.Sleep(time.Second)
			vary = !reflect.DeepEqual(first, delivered.messages[1].build())
		}
		distinct.messages = append(distinct.messages, delivered.messages[0])
		list = append(list, delivered)
	}
	if !vary {
		c.leaveOut("Message makes the same of each copy", "metadata")
	}
	list = append(list, distinct)
	if len(f.IDs) == 0 {
		large := keyCase[M]{rule: "big numbers", messages: []keyMessage[M]{f.message(0, 0)}}
		for _, id := range largeIDs {
			if id != 0 { // an int of 32 bits has no large ones
				large.messages = append(large.messages, f.message(id, 0))
			}
		}
		list = append(list, large)
	}
	return list
}

// keyTemplate makes messages of the values of fields.
type keyTemplate[M any] struct {
	fields []string
	build  func(values []string) M
}

func (t keyTemplate[M]) message(values []string) keyMessage[M] {
	name := func() string {
		var b strings.Builder
		for i, v := range values {
			fmt.Fprintf(&b, " %s=%q", t.fields[i], shorten(v, shownValue))
		}
		return b.String()[1:]
	}
	return keyMessage[M]{name: name, made: true, build: func() M { return t.build(slices.Clone(values)) }}
}

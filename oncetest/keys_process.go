package oncetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// keysFile is set in the environment of the second process: where its keys go.
const keysFile = "ONCETEST_KEYS_FILE"

// otherProcess compares the keys of the user's messages with those that another
// process has for them. It is called in a subtest, whose name leads the other
// process to the same place, where it writes its keys and exits.
func (c *keyChecks[M]) otherProcess(t *testing.T) *keyFindings {
	found := &keyFindings{}
	mine, err := c.ownKeys()
	if err != nil {
		found.add(twoProcesses, err.Error())
		return found
	}
	if file := os.Getenv(keysFile); file != "" {
		if err := os.WriteFile(file, []byte(strings.Join(mine, "\n")), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "oncetest:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	theirs, err := keysOfOther(t)
	if err != nil {
		found.add(twoProcesses, err.Error())
		return found
	}
	if len(theirs) != len(mine) {
		found.add(twoProcesses, fmt.Sprintf("another process has keys for %d messages, this one for %d", len(theirs), len(mine)))
		return found
	}
	for i, own := range c.own {
		found.checked++
		if mine[i] != theirs[i] {
			found.add(twoProcesses, "in another process the message has another key",
				keyOfOther{mine[i], theirs[i], own.name()})
		}
	}
	return found
}

type keyOfOther struct{ mine, theirs, name string }

func (k keyOfOther) String() string {
	return fmt.Sprintf("%s and %s for %s", shorten(k.mine, shownMessage), shorten(k.theirs, shownMessage), k.name)
}

// ownKeys returns the keys, quoted. Both processes have the same fake time.
func (c *keyChecks[M]) ownKeys() (keys []string, err error) {
	err = inBubble(func() {
		for _, own := range c.own {
			a := c.ask(own, own.build()).a
			if a.died != "" {
				a.key = "" // the rule "panic" tells; the text may have an address in it
			}
			keys = append(keys, strconv.Quote(a.key))
		}
	})
	return keys, err
}

// keysOfOther runs the test binary for this test alone.
func keysOfOther(t *testing.T) ([]string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the test binary: %w", err)
	}
	file := filepath.Join(t.TempDir(), "keys")
	names := strings.Split(t.Name(), "/")
	for i, name := range names {
		names[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	args := []string{"-test.run=" + strings.Join(names, "/"), "-test.timeout=1m"}
	args = append(args, slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool {
		return strings.HasPrefix(strings.TrimLeft(arg, "-"), "test.") // the profiles and logs are ours
	})...)
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), keysFile+"="+file,
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0") // or the race detector waits a second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("another process failed: %w\n%s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("another process didn't come to this test: %w\n%s", err, out)
	}
	return strings.Split(string(data), "\n"), nil
}

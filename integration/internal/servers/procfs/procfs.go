// Package procfs reads what Linux says about running processes.
package procfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Process is one running process. Two values are equal where they are the same
// process in the same place below the same parent.
type Process struct {
	ID     int
	Parent int
	start  string // since boot: an id used again has another one
}

// Find reads the process with an id; it is an error where there is none, and a
// process that has ended and wasn't waited for is none.
func Find(id int) (Process, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return Process{}, err
	}
	// The name, in brackets, may hold spaces and brackets.
	text := string(raw)
	field := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(field) < 20 {
		return Process{}, fmt.Errorf("read process %d: %q", id, text)
	}
	if field[0] == "Z" || field[0] == "X" {
		return Process{}, fmt.Errorf("process %d has ended: %w", id, os.ErrNotExist)
	}
	parent, err := strconv.Atoi(field[1])
	if err != nil {
		return Process{}, fmt.Errorf("read process %d: %w", id, err)
	}
	return Process{ID: id, Parent: parent, start: field[19]}, nil
}

// Alive says whether the same process still runs, below whatever parent.
func (p Process) Alive() bool {
	now, err := Find(p.ID)
	return err == nil && now.start == p.start
}

// Children lists the running children of a process.
func Children(id int) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var list []Process
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		p, err := Find(child)
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH): // has ended since
		case err != nil:
			return nil, err
		case p.Parent == id:
			list = append(list, p)
		}
	}
	return list, nil
}

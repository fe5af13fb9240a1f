// Package results keeps what the programs of bench have measured. A program writes
// data files; its document and its pictures are made of these and of nothing else,
// so that a test can make them again and compare.
package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Dir is where a program writes. Nothing is written to the empty one.
type Dir string

// Write makes a file, or replaces it as a whole.
func (d Dir) Write(name string, data []byte) error {
	if d == "" {
		return nil
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return replace(d.path(name), data)
}

// replace puts data in the place of a file, so that nobody sees a half of it.
func replace(file string, data []byte) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("results: write %s: %w", file, err)
			_ = os.Remove(temp.Name())
		}
	}()
	_, err = temp.Write(data)
	if err = errors.Join(err, temp.Chmod(0o644), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), file)
}

// Read returns what is in a file. It is fs.ErrNotExist if there is none.
func (d Dir) Read(name string) ([]byte, error) {
	if d == "" {
		return nil, fmt.Errorf("results: %s: no directory: %w", name, fs.ErrNotExist)
	}
	data, err := os.ReadFile(d.path(name))
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	return data, nil
}

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

// WriteJSON writes v, for people and for ReadJSON.
func WriteJSON(d Dir, name string, v any) error {
	data, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return fmt.Errorf("results: %s: %w", name, err)
	}
	return d.Write(name, append(data, '\n'))
}

// ReadJSON reads what WriteJSON wrote.
func ReadJSON[T any](d Dir, name string) (v T, err error) {
	data, err := d.Read(name)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("results: %s: %w", name, err)
	}
	return v, nil
}

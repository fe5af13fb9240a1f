// Package oncepipe is a worker pipeline whose side effects happen once.
package oncepipe

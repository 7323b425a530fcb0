package snowmelt

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

const (
	framesShown     = 20
	textCharacters  = 2000
	inputCharacters = 200
)

// failure is what the platform is told when the handler fails; docs/reference/runtimes.md has its fields.
type failure struct {
	Kind      string    `json:"kind"`
	Function  string    `json:"function"`
	Exception string    `json:"exception"`
	Location  *location `json:"location,omitempty"`
	Traceback []string  `json:"traceback,omitempty"`
	Input     string    `json:"input,omitempty"`
	Failed    int       `json:"failed"`
	Calls     int       `json:"calls"`
}

type location struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Within string `json:"within"`
}

func (f *failure) of(function string, event json.RawMessage) *failure {
	f.Function, f.Failed, f.Calls = function, 1, 1
	f.Exception = shortened(f.Exception, textCharacters)
	f.Input = "event = " + shortened(string(event), inputCharacters)
	return f
}

// returned is the failure that an error of the handler means; errors have no trace in Go.
func returned(err error) *failure {
	kind := "raised"
	if limit := limit(err); limit != "" {
		kind = limit
	}
	return &failure{Kind: kind, Exception: line(err), Traceback: chain(err)}
}

// panicked is called in the deferred function: the frames of the panic are still there.
func panicked(reason any) *failure {
	f := &failure{Kind: "raised", Exception: fmt.Sprintf("panic: %v", reason)}
	if err, ok := reason.(error); ok {
		if limit := limit(err); limit != "" {
			f.Kind = limit
		}
	}
	for _, frame := range users() {
		if f.Location == nil {
			f.Location = &location{frame.file, frame.line, frame.within}
		}
		f.Traceback = append(f.Traceback, fmt.Sprintf("%s:%d in %s", frame.file, frame.line, frame.within))
	}
	f.Traceback = append(f.Traceback, f.Exception)
	return f
}

type frame struct {
	file   string
	line   int
	within string
}

// users are the frames of the handler's own code, the innermost first.
func users() []frame {
	counters := make([]uintptr, 64)
	all := runtime.CallersFrames(counters[:runtime.Callers(3, counters)])
	var found []frame
	panicking := false
	for more := true; more && len(found) < framesShown; {
		var one runtime.Frame
		one, more = all.Next()
		switch {
		case one.Function == "runtime.gopanic":
			panicking = true
		case !panicking || one.Function == "" || strings.HasPrefix(one.Function, "runtime."):
		case strings.Contains(one.Function, "snowmelt.answer["):
			return found
		default:
			found = append(found, frame{filepath.Base(one.File), one.Line, one.Function + "()"})
		}
	}
	return found
}

// limit names the limit of the sandbox that is behind an error; empty if none is.
func limit(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "scratch"
	case errors.Is(err, syscall.EMFILE):
		return "files"
	case errors.Is(err, syscall.EAGAIN) && strings.Contains(err.Error(), "fork"):
		return "processes"
	case errors.Is(err, syscall.ENOMEM):
		return "memory"
	}
	return ""
}

func chain(err error) []string {
	lines := []string{line(err)}
	for err = errors.Unwrap(err); err != nil; err = errors.Unwrap(err) {
		lines = append(lines, "caused by "+line(err))
	}
	return lines
}

func line(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return fmt.Sprintf("%s: %s", strings.TrimPrefix(fmt.Sprintf("%T", err), "*"), text)
}

func shortened(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}

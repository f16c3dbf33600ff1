package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"noncegate/test/lab/expect"
	"noncegate/wire"
)

// TestCommands plays testdata/*.txt, each with a gateway of its own that answers as it says.
// testdata/README.md describes the format.
func TestCommands(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 9 {
		t.Fatalf("found %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			expect.Must(t, err)
			s := newCommandScript(t)
			for n, line := range strings.Split(string(text), "\n") {
				s.line(n+1, line)
			}
			s.run()
		})
	}
}

// commandScript is a file that is being played. What belongs to a command is gathered until
// the next line that is none of it.
type commandScript struct {
	*testing.T
	places *strings.Replacer // what $URL, $ADMIN and $DIR stand for
	dir    string

	mu      sync.Mutex          // guards what the servers use
	answers map[string][]string // by method, or by method and path
	asked   []string

	at        int      // the line of the command
	args      []string // nil: there is none
	code      int
	out, err  []string // whole lines
	says      []string // parts of stderr
	wantAsked []string
}

func newCommandScript(t *testing.T) *commandScript {
	s := &commandScript{T: t, dir: t.TempDir(), answers: map[string][]string{}}
	private := httptest.NewServer(http.HandlerFunc(s.private))
	t.Cleanup(private.Close)
	s.places = strings.NewReplacer("$URL", fakeGateway(t, s.answer), "$ADMIN", private.URL, "$DIR", s.dir)
	return s
}

// next takes the next answer to a question.
func (s *commandScript) next(of, question string) (answer string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, question)
	left := s.answers[of]
	if len(left) == 0 {
		s.Errorf("line %d: nothing answers %s", s.at, question)
		return "", false
	}
	s.answers[of] = left[1:]
	return left[0], true
}

func (s *commandScript) answer(r request) []string {
	answer, ok := s.next(r.Method, strings.TrimSpace(r.Method+" "+string(r.Params)))
	if !ok || answer == "cut" {
		return nil
	}
	kind := "result"
	if refusal, is := strings.CutPrefix(answer, "error "); is {
		kind, answer = "error", refusal
	}
	return []string{`{"jsonrpc":"2.0","id":ID,"` + kind + `":` + answer + `}`}
}

func (s *commandScript) private(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	question := strings.TrimSpace(r.Method + " " + r.URL.RequestURI() + " " + string(body))
	if key := r.Header.Get("Authorization"); key != "" {
		question += " with " + key
	}
	answer, _ := s.next(r.Method+" "+r.URL.Path, question)
	code, text, _ := strings.Cut(answer, " ")
	status, err := strconv.Atoi(code)
	if err != nil {
		status = http.StatusTeapot
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

func (s *commandScript) line(n int, line string) {
	word, rest, _ := strings.Cut(line, " ")
	rest = s.places.Replace(rest)
	switch word {
	case "", "#":
	case "exit":
		s.code, _ = strconv.Atoi(rest)
	case ">":
		s.out = append(s.out, rest)
	case "!":
		s.err = append(s.err, rest)
	case "!~":
		s.says = append(s.says, rest)
	case "asked":
		s.wantAsked = append(s.wantAsked, rest)
	case "$":
		s.run()
		s.at, s.args = n, words(rest)
	case "file", "env", "gateway", "admin":
		s.run()
		s.around(word, rest)
	default:
		s.Fatalf("line %d: no line begins with %s", n, word)
	}
}

// around changes something around the command that comes.
func (s *commandScript) around(what, rest string) {
	of, rest, _ := strings.Cut(rest, " ")
	switch what {
	case "file":
		text, err := strconv.Unquote(`"` + rest + `"`)
		if err == nil {
			err = os.WriteFile(filepath.Join(s.dir, of), []byte(text), 0o600)
		}
		expect.Must(s, err)
	case "env":
		s.Setenv(of, rest)
	case "admin":
		path, answer, _ := strings.Cut(rest, " ")
		of, rest = of+" "+path, answer
		fallthrough
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answers[of] = append(s.answers[of], rest)
	}
}

// words splits a line at its spaces, but for those between single quotes.
func words(line string) (all []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			all = append(all, part)
			continue
		}
		all = append(all, strings.Fields(part)...)
	}
	return all
}

// run runs the command that was gathered, and compares.
func (s *commandScript) run() {
	if s.args == nil {
		return
	}
	o := runArgs(s.T, s.args...)
	wrong := func(what string, got, want any) {
		s.Errorf("line %d: %q: %s is\n%v\nwant\n%v", s.at, s.args, what, got, want)
	}
	if o.code != s.code {
		wrong("the exit code", fmt.Sprint(o.code, " ", o.stderr), s.code)
	}
	if want := lines(s.out); o.stdout != want {
		wrong("stdout", o.stdout, want)
	}
	if want := lines(s.err); o.stderr != want && len(s.says) == 0 {
		wrong("stderr", o.stderr, want)
	}
	for _, part := range s.says {
		if !strings.Contains(o.stderr, part) || strings.Count(o.stderr, "\n") != 1 {
			wrong("stderr", o.stderr, "one line with "+part)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wantAsked != nil && !slices.Equal(s.asked, s.wantAsked) {
		wrong("what was asked", strings.Join(s.asked, "\n"), strings.Join(s.wantAsked, "\n"))
	}
	if o.cfg != nil && o.code != exitOK || strings.Contains(o.stderr, "hidden") {
		s.Errorf("line %d: %q: it served, or shows what is secret: %s", s.at, s.args, o.stderr)
	}
	s.args, s.code, s.out, s.err, s.says, s.asked, s.wantAsked = nil, 0, nil, nil, nil, nil, nil
}

func lines(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, "\n") + "\n"
}

// request is what a fake gateway reads.
type request struct {
	ID     wire.Raw `json:"id"`
	Method string   `json:"method"`
	Params wire.Raw `json:"params"`
}

// fakeGateway answers each request with the frames that answer returns, ID
// standing for the request's id; without any it closes the connection.
func fakeGateway(t *testing.T, answer func(request) []string) (url string) {
	t.Helper()
	var mu sync.Mutex // one answer at a time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			_, data, err := conn.ReadMessage()
			if err != nil {
				return
			}
			var req request
			if err := wire.Unmarshal(data, &req); err != nil {
				t.Errorf("request %s: %v", data, err)
				return
			}
			mu.Lock()
			frames := answer(req)
			mu.Unlock()
			for _, frame := range frames {
				frame = strings.ReplaceAll(frame, "ID", string(req.ID))
				if conn.WriteMessage(websocket.TextMessage, []byte(frame)) != nil {
					return
				}
			}
			if len(frames) == 0 {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

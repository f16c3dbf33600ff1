package redisevents

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"noncegate/wire"
)

func encoded(signer string, version int64) []byte {
	return wire.AppendEvent(nil, &wire.Event{Type: wire.EventAllocated, Signer: signer, Nonce: version, Version: version})
}

// TestSignersStayInTheirChannels: nodes of different versions must agree.
func TestSignersStayInTheirChannels(t *testing.T) {
	for signer, want := range map[string]int{"a": 27, "eip155:1:0x52908400098527886e0f7030069857d2e4169ee7": 36, "solana:main:xyz": 46} {
		if got := channelOf(signer); got != want {
			t.Errorf("%s is in channel %d, want %d", signer, got, want)
		}
	}
	if got := names("db")[7]; got != "noncegate:{db:7}:events" {
		t.Errorf("channel 7 is called %s", got)
	}
}

// Its events come as they were written, also those of a newer node.
func TestAMessageIsReadAsItWasWritten(t *testing.T) {
	later := []byte(`{"type":"fromLater","signer":"a","nonce":1,"gap":{"nonce":4,"since":"2026-11-20T18:33:56.123Z","blocked":2},"more":{"x":[1]}}`)
	m := message{origin: "o", node: "host:8080", first: 7, events: [][]byte{encoded("a", 1), later}}
	got, body, err := parseHead(string(m.append(nil)))
	if err != nil || got.origin != "o" || got.node != "host:8080" || got.first != 7 || got.bye {
		t.Errorf("%+v, %v", got, err)
	}
	events, signers, err := parseEvents(channelOf("a"), body)
	if err != nil || fmt.Sprint(signers) != "[a a]" || !slices.EqualFunc(events, m.events, bytes.Equal) {
		t.Errorf("%q %v, %v", events, signers, err)
	}
	got, body, err = parseHead(string((&message{origin: "o", node: "n", first: 9, bye: true}).append(nil)))
	if err != nil || !got.bye || got.first != 9 || body != "" {
		t.Errorf("%+v %q, %v", got, body, err)
	}
}

func TestWhatIsNoMessageOfOursIsTold(t *testing.T) {
	good := string(encoded("a", 1))
	for payload, want := range map[string]error{
		"":                                   errMagic,
		"hello":                              errMagic,
		"noncegate2 o n 1":                   errMagic,
		strings.Repeat("x", 2<<20):           errMagic,
		"noncegate1 o n":                     errHead,
		"noncegate1 o n -1":                  errHead,
		"noncegate1 o n 9223372036854775808": errHead,
		"noncegate1 o n 1 hello":             errHead,
		"noncegate1 o n 1 bye bye":           errHead,
		"noncegate1 " + strings.Repeat("o", 65) + " n 1":                     errHead,
		"noncegate1 o n 1\nhello":                                            errEvent,
		"noncegate1 o n 1\n{}":                                               errEvent,
		"noncegate1 o n 1\n" + good + "\n":                                   errEvent,
		"noncegate1 o n 1\n" + good + " ":                                    errEvent,
		"noncegate1 o n 1\n" + strings.Replace(good, "{", `{"missed":3,`, 1): errEvent,
		"noncegate1 o n 1\n" + string(encoded("another", 1)):                 errSigner,
	} {
		_, body, err := parseHead(payload)
		if err == nil {
			_, _, err = parseEvents(channelOf("a"), body)
		}
		if err != want {
			t.Errorf("%.60q: %v, want %v", payload, err, want)
		}
	}
}

func FuzzWhateverComesIsReadOrRefused(f *testing.F) {
	f.Add("noncegate1 o n 1\n" + string(encoded("a", 1)))
	f.Add("noncegate1 o n 1 bye")
	f.Fuzz(func(t *testing.T, payload string) {
		m, body, err := parseHead(payload)
		if err != nil {
			return
		}
		if len(m.origin) > 64 || len(m.node) > 256 {
			t.Errorf("%q", payload)
		}
		if events, signers, err := parseEvents(channelOf("a"), body); err == nil && len(events) != len(signers) {
			t.Errorf("%d events of %d signers", len(events), len(signers))
		}
	})
}

func TestNumbersTellWhatIsMissingAndWhatCameBefore(t *testing.T) {
	for _, c := range []struct {
		next, first uint64
		n           int
		wantSkip    int
		wantMissed  uint64
		wantNext    uint64
	}{
		{5, 5, 3, 0, 0, 8},
		{5, 7, 3, 0, 2, 10},
		{5, 7, 0, 0, 2, 7}, // it only says that it is there
		{5, 5, 0, 0, 0, 5},
		{5, 2, 3, 3, 0, 5}, // it came late, and counts as missed already
		{5, 2, 0, 0, 0, 5},
		{5, 3, 4, 2, 0, 7},
		{5, 1 << 62, 1, 0, maxGap, 1<<62 + 1},
	} {
		s := sequence{next: c.next}
		skip, missed := s.advance(c.first, c.n, time.Now())
		if skip != c.wantSkip || missed != c.wantMissed || s.next != c.wantNext {
			t.Errorf("at %d, %d from %d: skip %d, missed %d, next %d; want %+v", c.next, c.n, c.first, skip, missed, s.next, c)
		}
	}
}

func TestWhoFallsSilentIsALossAndWhoSaidGoodbyeIsNone(t *testing.T) {
	var h heard
	now := time.Now()
	h.follow(&message{origin: "dead"}, now)
	h.follow(&message{origin: "left", bye: true}, now)
	h.follow(&message{origin: "lives"}, now.Add(silence))
	if h.drop(now.Add(silence)) || len(h.origins) != 3 {
		t.Error("somebody was given up too early")
	}
	if !h.drop(now.Add(silence+1)) || len(h.origins) != 1 {
		t.Errorf("no loss, or not forgotten: %v", h.origins)
	}
	h.follow(&message{origin: "left", bye: true}, now)
	if h.drop(now.Add(silence + 1)) {
		t.Error("a goodbye counts as a loss")
	}
	for i := range 2 * maxOrigins {
		h.follow(&message{origin: fmt.Sprint(i)}, now)
	}
	if len(h.origins) != maxOrigins {
		t.Errorf("%d publishers are remembered, want no more than %d", len(h.origins), maxOrigins)
	}
}

func TestAMessageHoldsWhatFollowsWithoutAGap(t *testing.T) {
	big := make([]byte, messageBytes*2)
	events := []queued{{0, 3, []byte("a")}, {0, 4, []byte("b")}, {0, 6, []byte("c")}, {0, 7, big}, {0, 8, []byte("d")}}
	var got []string
	for len(events) > 0 {
		var m message
		m, events = cut(events)
		got = append(got, fmt.Sprint(m.first, len(m.events)))
	}
	if fmt.Sprint(got) != "[3 2 6 1 7 1 8 1]" {
		t.Errorf("cut into %v", got)
	}
}

func TestWhoIsHeardLateMayHaveBeenMissed(t *testing.T) {
	now := time.Now()
	settled := heard{since: now.Add(-sure)}
	for name, want := range map[string]struct {
		of     *heard
		first  uint64
		missed uint64
	}{
		"it was there before":          {&settled, 7, 1},
		"it begins":                    {&settled, 0, 0},
		"the channel is not sure":      {&heard{since: now}, 7, 0},
		"its events were left out too": {&settled, 1, 1},
	} {
		m := &message{origin: name, first: want.first, events: [][]byte{nil}}
		if skip, missed, ok := want.of.follow(m, now); skip != 0 || missed != want.missed || !ok {
			t.Errorf("%s: %d skipped, %d missed, %v", name, skip, missed, ok)
		}
	}
}

package wire

import "time"

// Time is a moment on the wire: RFC 3339 in UTC with exactly three digits of
// milliseconds, such as "2026-11-20T18:33:56.123Z". What is finer is cut off.
type Time time.Time

// AppendText appends the moment to b. It never fails.
func (t Time) AppendText(b []byte) ([]byte, error) {
	u := time.Time(t).UTC()
	b = u.AppendFormat(b, time.RFC3339) // the layout the library has a fast path for
	ms := u.Nanosecond() / int(time.Millisecond)
	b = b[:len(b)-len("Z")]
	return append(b, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z'), nil
}

// MarshalText returns the moment as text. It never fails.
func (t Time) MarshalText() ([]byte, error) { return t.AppendText(nil) }

// UnmarshalText reads any RFC 3339 time.
func (t *Time) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return err
	}
	*t = Time(parsed.UTC())
	return nil
}

// String returns the moment as it is written on the wire.
func (t Time) String() string {
	text, _ := t.AppendText(nil)
	return string(text)
}

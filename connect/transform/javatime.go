package transform

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// javaPattern is a pattern of Java's SimpleDateFormat, as far as it is about dates in the English language.
type javaPattern []javaField

// javaField is a letter with how often it stands there, or a text that stands for itself.
type javaField struct {
	letter byte // 0: text
	count  int
	text   string
}

// javaLetters are those that are known.
const javaLetters = "yYMLdDHkKhmsSaEuzZX"

// firstYear is the earliest that a year of two digits can mean.
const firstYear = 1946

func isJavaPattern(text string) error {
	_, err := parseJavaPattern(text)
	return err
}

func parseJavaPattern(text string) (p javaPattern, err error) {
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\'':
			quoted, rest, err := javaQuoted(text[i:])
			if err != nil {
				return nil, err
			}
			p = append(p, javaField{text: quoted})
			i = len(text) - len(rest)
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			if !strings.Contains(javaLetters, string(c)) {
				return nil, fmt.Errorf("the letter %q means nothing in a date's pattern here; quote it if it is meant as text", c)
			}
			n := i
			for n < len(text) && text[n] == c {
				n++
			}
			p = append(p, javaField{letter: c, count: n - i})
			i = n
		default:
			p = append(p, javaField{text: text[i : i+1]})
			i++
		}
	}
	return p, nil
}

// javaQuoted reads a quoted text, in which two quotes are one.
func javaQuoted(text string) (quoted, rest string, err error) {
	if strings.HasPrefix(text, "''") {
		return "'", text[2:], nil
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] != '\'':
			b.WriteByte(text[i])
		case i+1 < len(text) && text[i+1] == '\'':
			b.WriteByte('\'')
			i++
		default:
			return b.String(), text[i+1:], nil
		}
	}
	return "", "", errors.New("a quote in the date's pattern has no end")
}

// format writes a time, which is in UTC.
func (p javaPattern) format(t time.Time) string {
	var b strings.Builder
	for _, f := range p {
		b.WriteString(f.format(t))
	}
	return b.String()
}

func (f *javaField) format(t time.Time) string {
	pad := func(n int) string { return fmt.Sprintf("%0*d", f.count, n) }
	switch f.letter {
	case 0:
		return f.text
	case 'y':
		if f.count == 2 {
			return fmt.Sprintf("%02d", t.Year()%100)
		}
		return pad(t.Year())
	case 'Y':
		year, _ := t.ISOWeek()
		return pad(year)
	case 'M', 'L':
		switch {
		case f.count >= 4:
			return t.Month().String()
		case f.count == 3:
			return t.Month().String()[:3]
		}
		return pad(int(t.Month()))
	case 'd':
		return pad(t.Day())
	case 'D':
		return pad(t.YearDay())
	case 'H':
		return pad(t.Hour())
	case 'k':
		return pad((t.Hour()+23)%24 + 1)
	case 'K':
		return pad(t.Hour() % 12)
	case 'h':
		return pad((t.Hour()+11)%12 + 1)
	case 'm':
		return pad(t.Minute())
	case 's':
		return pad(t.Second())
	case 'S':
		return pad(t.Nanosecond() / int(time.Millisecond))
	case 'u':
		return pad((int(t.Weekday())+6)%7 + 1) // Monday is 1
	default:
		return f.formatName(t)
	}
}

func (f *javaField) formatName(t time.Time) string {
	switch f.letter {
	case 'a':
		return t.Format("PM")
	case 'E':
		if f.count >= 4 {
			return t.Weekday().String()
		}
		return t.Weekday().String()[:3]
	case 'X':
		return "Z"
	case 'Z':
		return "+0000"
	default: // z
		return "UTC"
	}
}

// parse reads a time, in UTC where the text names no zone.
func (p javaPattern) parse(text string) (time.Time, error) {
	d := javaDate{year: 1970, month: 1, day: 1, yearDay: -1}
	rest := text
	for i := range p {
		var err error
		// A number ends where the next one begins without anything between them.
		adjacent := i+1 < len(p) && p[i+1].letter != 0
		if rest, err = d.take(&p[i], rest, adjacent); err != nil {
			return time.Time{}, fmt.Errorf("cannot read %.100q as a date: %w", text, err)
		}
	}
	if d.half12 {
		d.hour = d.hour%12 + 12*d.half
	}
	if d.yearDay > 0 {
		d.month, d.day = 1, d.yearDay
	}
	t := time.Date(d.year, time.Month(d.month), d.day, d.hour, d.minute, d.second, d.milli*int(time.Millisecond), time.UTC)
	return t.Add(-d.zone), nil
}

// javaDate is what was read of a date.
type javaDate struct {
	year, month, day, yearDay   int
	hour, minute, second, milli int
	half                        int // 0: in the morning
	half12                      bool
	zone                        time.Duration
}

func (d *javaDate) take(f *javaField, text string, adjacent bool) (rest string, err error) {
	switch f.letter {
	case 0:
		if !strings.HasPrefix(text, f.text) {
			return "", fmt.Errorf("%q is missing", f.text)
		}
		return text[len(f.text):], nil
	case 'a':
		return d.takeHalf(text)
	case 'E':
		return takeName(text, func(i int) {}, weekdays())
	case 'X', 'Z', 'z':
		return d.takeZone(text)
	case 'M', 'L':
		if f.count >= 3 {
			return takeName(text, func(i int) { d.month = i + 1 }, months())
		}
	}
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' && (!adjacent || n < f.count) {
		n++
	}
	v, err := strconv.Atoi(text[:n])
	if err != nil {
		return "", fmt.Errorf("there is no number for %q", strings.Repeat(string(f.letter), f.count))
	}
	d.set(f, v, n)
	return text[n:], nil
}

func (d *javaDate) set(f *javaField, v, digits int) {
	switch f.letter {
	case 'y', 'Y':
		if d.year = v; f.count <= 2 && digits == 2 {
			d.year = firstYear + (v-firstYear%100+100)%100
		}
	case 'M', 'L':
		d.month = v
	case 'd':
		d.day = v
	case 'D':
		d.yearDay = v
	case 'H':
		d.hour = v
	case 'k':
		d.hour = v % 24
	case 'K', 'h':
		d.hour, d.half12 = v%12, true
	case 'm':
		d.minute = v
	case 's':
		d.second = v
	case 'S':
		d.milli = v
	}
}

func (d *javaDate) takeHalf(text string) (rest string, err error) {
	switch {
	case len(text) >= 2 && strings.EqualFold(text[:2], "AM"):
		d.half = 0
	case len(text) >= 2 && strings.EqualFold(text[:2], "PM"):
		d.half, d.half12 = 1, true
	default:
		return "", errors.New("AM or PM is missing")
	}
	return text[2:], nil
}

func (d *javaDate) takeZone(text string) (rest string, err error) {
	for _, utc := range []string{"Z", "UTC", "GMT"} {
		if strings.HasPrefix(text, utc) {
			return text[len(utc):], nil
		}
	}
	for _, layout := range []string{"-07:00", "-0700", "-07"} {
		if len(text) < len(layout) {
			continue
		}
		if t, err := time.Parse(layout, text[:len(layout)]); err == nil {
			_, seconds := t.Zone()
			d.zone = time.Duration(seconds) * time.Second
			return text[len(layout):], nil
		}
	}
	return "", errors.New("the zone is missing")
}

// takeName reads one of some names, or the first three letters of it.
func takeName(text string, found func(i int), names []string) (rest string, err error) {
	for _, short := range []bool{false, true} {
		for i, name := range names {
			if short {
				name = name[:3]
			}
			if len(text) >= len(name) && strings.EqualFold(text[:len(name)], name) {
				found(i)
				return text[len(name):], nil
			}
		}
	}
	return "", errors.New("a name is missing")
}

func months() (out []string) {
	for m := time.January; m <= time.December; m++ {
		out = append(out, m.String())
	}
	return out
}

func weekdays() (out []string) {
	for d := time.Sunday; d <= time.Saturday; d++ {
		out = append(out, d.String())
	}
	return out
}

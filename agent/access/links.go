package access

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Link is the token of a shared link, as its room lists it.
type Link struct {
	ID      string    `json:"id" doc:"The first 16 hexadecimal digits of the token's SHA-256."`
	Room    string    `json:"room,omitempty"`
	Name    string    `json:"name,omitempty" doc:"Of the person."`
	Rights  []string  `json:"rights,omitempty" doc:"Empty for a link that was revoked by its id alone."`
	By      string    `json:"by,omitempty" doc:"Who made it."`
	Makers  []string  `json:"makers,omitempty" doc:"Links that it was made with, the first one last."`
	Made    time.Time `json:"made,omitzero"`
	Expires time.Time `json:"expires"`
	Revoked bool      `json:"revoked,omitempty"`

	ended time.Time // when it was revoked; zero for before a restart
}

const idBytes = 8

// linkID returns the id of a link's token.
func linkID(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:idBytes])
}

const (
	// maxLinks bounds the listed links of a room that the operator made, and maxBelow those that were made from one of them, also by
	// holders of such. One that is not listed still works, and ends with the link that it was made with. All that are revoked stay
	// until they expire: the operator's do not count, the others do, or a holder could make any number.
	maxLinks, maxBelow = 100, 25
	// maxPast bounds the links of a room that are revoked and expired. Of more, the one made last goes: the maker of many cannot have
	// earlier ones removed.
	maxPast = 1000
	// maxShared bounds the revoked links in an attribute, which has at most 64 KiB: the last ones.
	maxShared = 1000
	// maxLearned bounds the links of a room with those of other commentators.
	maxLearned = 10_000
	// recheck is the interval at which the end of a grant is compared with the wall clock, which may be set.
	recheck = 5 * time.Second
	// steadyTime is how long the wall clock must be steady after a jump of more than maxJump, and after the start, before expired links are
	// forgotten: a revoked link must not work again when a clock that was fast is set right.
	steadyTime, maxJump = time.Hour, time.Minute
	// expiredFor is how long after its end a link of an earlier run is read again, and a revoked one is taken from another process. At the
	// start nothing tells whether the clock is right.
	expiredFor = 32 * 24 * time.Hour
)

// ErrNoLink is returned by Revoke for an id that is none, not of this room, or not below the link of the one who revokes.
var ErrNoLink = errors.New("no such link in this room")

// Links are the links of the rooms of a process: those that were made, so that they can be listed, and those that are revoked, until
// they expire. It is safe for concurrent use. A nil Links has none.
type Links struct {
	mu      sync.Mutex
	byID    map[string]Link
	watched map[*watched]struct{}
	keep    func(id string, value json.RawMessage)
	seen    time.Time // by the last search for expired links
	steady  time.Time // when the wall clock counts as steady
	refused Refused
}

// Refused counts links beyond a bound, and uses of ended ones.
type Refused struct {
	// Unlisted are those of a full list: the oldest one of the same origin, or the new one.
	Unlisted uint64
	// Unlearned are revoked ones of other commentators, at each exchange.
	Unlearned uint64
	// Deep are those that too many holders of links made from each other.
	Deep uint64
	// Expired and Revoked are uses of ended ones.
	Expired, Revoked uint64
}

// Stats returns the numbers of links that are listed and valid, and that are revoked, and what was refused.
func (l *Links) Stats(now time.Time) (listed, revoked int, refused Refused) {
	if l == nil {
		return 0, 0, Refused{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, link := range l.byID {
		switch {
		case link.Revoked:
			revoked++
		case !link.expired(now):
			listed++
		}
	}
	return listed, revoked, l.refused
}

func (l *Links) refuse(count func(*Refused)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	count(&l.refused)
}

// watched is a use of links that ends with them.
type watched struct {
	ids  []string
	over func(error)
}

// NewLinks returns Links with those of an earlier run, by id. keep stores a link, or deletes it if the value is nil; it
// must not block. A nil keep stores nothing.
func NewLinks(past map[string]json.RawMessage, keep func(id string, value json.RawMessage), now time.Time) *Links {
	if keep == nil {
		keep = func(string, json.RawMessage) {}
	}
	l := &Links{byID: map[string]Link{}, watched: map[*watched]struct{}{}, keep: keep, seen: now, steady: now.Add(steadyTime)}
	for id, value := range past {
		var link Link
		if err := json.Unmarshal(value, &link); err != nil || link.ID != id || link.expired(now.Add(-expiredFor)) {
			keep(id, nil)
			continue
		}
		l.byID[id] = link
	}
	return l
}

// root returns the id of the operator's link that a link was made from; "" for the operator's.
func (link Link) root() string { return Grant{Links: link.Makers}.Root() }

// List returns the links of a room that have not expired, newest first: all for the operator, with an empty id, and for the holder of a
// link those below it. Links below a revoked one are revoked.
func (l *Links) List(room, by string, now time.Time) []Link {
	out := []Link{}
	if l == nil {
		return out
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, link := range l.byID {
		if link.Room != room || link.expired(now) {
			continue
		}
		link.Revoked = link.Revoked || l.revokedLocked(link.Makers)
		if by != "" {
			at := slices.Index(link.Makers, by)
			if at < 0 {
				continue
			}
			link.Makers = link.Makers[:at:at]
		}
		out = append(out, link)
	}
	slices.SortFunc(out, func(a, b Link) int { return cmp.Or(b.Made.Compare(a.Made), cmp.Compare(a.ID, b.ID)) })
	return out
}

// Made adds a token for one room to the list of that room's links, and returns its id.
func (l *Links) Made(token string, g Grant, by string, now time.Time) (id string) {
	id = linkID(token)
	l.add(Link{
		ID: id, Room: g.Rooms[0], Name: g.Name, Rights: g.Rights.Names(), By: by, Makers: g.Links, Made: now.UTC(), Expires: g.Expires.UTC(),
	}, now)
	return id
}

// add lists a link, unless all places for those of its origin have revoked ones.
func (l *Links) add(link Link, now time.Time) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireLocked(now)
	if _, known := l.byID[link.ID]; !known && l.spaceLocked(link, now) {
		l.setLocked(link)
	}
}

// expireLocked removes expired links, unless the wall clock has jumped.
func (l *Links) expireLocked(now time.Time) {
	jump := now.Round(0).Sub(l.seen.Round(0)) - now.Sub(l.seen)
	if l.seen = now; jump.Abs() > maxJump {
		l.steady = now.Add(steadyTime)
	}
	if now.Before(l.steady) {
		return
	}
	for id, link := range l.byID {
		if link.expired(now) {
			l.removeLocked(id)
		}
	}
}

func (link Link) expired(now time.Time) bool { return !now.Before(link.Expires) }

// spaceLocked makes space for a new link, if there are as many of its root as may be: one that was made further below goes, or else one
// that was made with the same link, the oldest one. It returns false if there is none. The holder of an operator's link has as many places
// of its own, or holders below could leave it none. Links that are revoked and expired have other places.
func (l *Links) spaceLocked(made Link, now time.Time) bool {
	root, maker, most := made.root(), "", maxLinks
	if root != "" {
		maker, most = made.Makers[0], maxBelow
	}
	mine := func(link Link) bool { return slices.Equal(link.Makers, made.Makers) }
	rank := func(link Link) int { // the lowest goes first
		switch {
		case link.expired(now):
			return 0
		case !mine(link):
			return 1
		}
		return 2
	}
	var n, own, past int
	var first, last Link
	for _, link := range l.byID {
		switch {
		case link.Room != made.Room:
			continue
		case link.Revoked && link.expired(now):
			if past++; last.ID == "" || link.Made.After(last.Made) {
				last = link
			}
			continue
		case link.root() != root, link.Revoked && root == "":
			continue
		}
		n++
		if mine(link) {
			own++
		}
		if below := maker == "" || slices.Contains(link.Makers, maker); below && !link.Revoked &&
			(first.ID == "" || cmp.Or(cmp.Compare(rank(link), rank(first)), link.Made.Compare(first.Made)) < 0) {
			first = link
		}
	}
	if past >= maxPast {
		l.removeLocked(last.ID)
	}
	if n < most || maker == root && own < most && (first.ID == "" || rank(first) == 2) {
		return true
	}
	l.refused.Unlisted++
	if first.ID != "" {
		l.removeLocked(first.ID)
	}
	return first.ID != ""
}

func (l *Links) removeLocked(id string) {
	delete(l.byID, id)
	l.keep(id, nil)
}

func (l *Links) setLocked(link Link) {
	l.byID[link.ID] = link
	if value, err := json.Marshal(link); err == nil { // strings and times always marshal
		l.keep(link.ID, value)
	}
}

// Revoke ends a link of a room and those below it, which its holder and theirs made, with all that they opened. The operator, with an
// empty by, may revoke any id. The holder of a link may revoke those of the room's list that are below it.
func (l *Links) Revoke(room, id, by string, now time.Time) error {
	if l == nil {
		return ErrNoLink
	}
	id = strings.ToLower(id)
	l.mu.Lock()
	link, known := l.byID[id]
	if !validID(id) || by != "" && (link.Room != room || !slices.Contains(link.Makers, by)) {
		l.mu.Unlock()
		return ErrNoLink
	}
	if !known {
		link = Link{ID: id, Room: room, Expires: now.Add(MaxLife).UTC()}
	}
	l.mu.Unlock()
	l.revoke([]Link{link}, now)
	return nil
}

// revoke revokes links, and ends what they opened.
func (l *Links) revoke(list []Link, now time.Time) {
	if l == nil {
		return
	}
	var over []func(error)
	l.mu.Lock()
	l.expireLocked(now)
	for _, link := range list {
		known := l.byID[link.ID]
		if known.Revoked || link.expired(now) && !now.Before(l.steady) {
			continue
		}
		if known.ID != "" {
			link = known
		}
		link.Revoked, link.ended = true, now
		l.setLocked(link)
		for w := range l.watched {
			if slices.Contains(w.ids, link.ID) {
				over = append(over, w.over)
			}
		}
	}
	l.mu.Unlock()
	for _, end := range over {
		end(ErrRevoked)
	}
}

// Revoked reports whether one of the links is revoked.
func (l *Links) Revoked(ids []string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revokedLocked(ids)
}

func (l *Links) revokedLocked(ids []string) bool {
	return slices.ContainsFunc(ids, func(id string) bool { return l.byID[id].Revoked })
}

// Watch calls over, at most once, when the rights of a grant have ended: with ErrExpired, by the wall clock, or, for revoked links, with
// ErrRevoked. stop ends the watch.
func (l *Links) Watch(g Grant, now func() time.Time, over func(error)) (stop func()) {
	var once sync.Once
	end, told := func() {}, over
	over = func(err error) { once.Do(func() { told(err) }) }
	if !g.Expires.IsZero() {
		end = watchEnd(g.Expires, now, func() { over(ErrExpired) })
	}
	if l == nil || len(g.Links) == 0 {
		return func() { end() }
	}
	w := &watched{g.Links, over}
	l.mu.Lock()
	l.watched[w] = struct{}{}
	l.mu.Unlock()
	if l.Revoked(g.Links) { // since it was checked
		over(ErrRevoked)
	}
	return func() {
		end()
		l.mu.Lock()
		delete(l.watched, w)
		l.mu.Unlock()
	}
}

// watchEnd calls over when the wall clock shows a time. A timer alone would not: it does not follow when the clock is set, and stands
// still while the machine sleeps.
func watchEnd(end time.Time, now func() time.Time, over func()) (stop func()) {
	var stopped atomic.Bool
	var timer *time.Timer
	wait := func() { timer.Reset(min(end.Sub(now()), recheck)) }
	timer = time.AfterFunc(recheck, func() {
		switch {
		case stopped.Load():
		case now().Before(end):
			wait()
		default:
			over()
		}
	})
	wait()
	return func() {
		stopped.Store(true)
		timer.Stop()
	}
}

// inRoom reports whether a link belongs to a room of LiveKit. The commentators of its participants have names of their own.
func (link Link) inRoom(room string) bool {
	return link.Room == room || strings.HasPrefix(link.Room, room+":")
}

// Shared returns the revoked links of a room, the last ones of many, in the form that Learn reads, for its other commentators; "" for none.
func (l *Links) Shared(room string, now time.Time) string {
	list := slices.DeleteFunc(l.HandOver(room, now), func(x Link) bool { return !x.Revoked })
	slices.SortStableFunc(list, func(a, b Link) int {
		return cmp.Or(cmp.Compare(min(0, b.Expires.Sub(now)), min(0, a.Expires.Sub(now))), b.ended.Compare(a.ended)) // expired ones last
	})
	var out []string
	for _, link := range list[:min(len(list), maxShared)] {
		out = append(out, link.ID+":"+strconv.FormatInt(link.Expires.Unix(), 10))
	}
	return strings.Join(out, ",")
}

// Learn takes the revoked links of a room from Shared of another commentator there.
func (l *Links) Learn(room, shared string, now time.Time) {
	if l == nil || shared == "" {
		return
	}
	var list []Link
	for item := range strings.SplitSeq(shared, ",") {
		id, end, _ := strings.Cut(item, ":")
		expires, err := strconv.ParseInt(end, 10, 64)
		link := Link{ID: id, Room: room, Expires: time.Unix(expires, 0).UTC(), Revoked: true}
		if err == nil && link.valid(now) {
			list = append(list, link)
		}
	}
	l.revoke(l.learnable(room, list), now)
}

// learnable returns the links of a list that are known, and as many others as the room has places for.
func (l *Links) learnable(room string, list []Link) []Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	places := maxLearned
	for _, link := range l.byID {
		if link.Room == room {
			places--
		}
	}
	return slices.DeleteFunc(list, func(link Link) bool {
		if _, known := l.byID[link.ID]; known {
			return false
		}
		if places <= 0 {
			l.refused.Unlearned++
			return true
		}
		places--
		return false
	})
}

// HandOver returns the links of a room and of its participants' commentators, in a fixed order. Revoked ones that look expired are among
// them while the clock may be wrong.
func (l *Links) HandOver(room string, now time.Time) []Link {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireLocked(now)
	out := slices.DeleteFunc(slices.Collect(maps.Values(l.byID)), func(x Link) bool {
		return !x.inRoom(room) || x.expired(now) && !x.Revoked
	})
	slices.SortFunc(out, func(a, b Link) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Restore takes links of HandOver.
func (l *Links) Restore(list []Link, now time.Time) {
	var revoked []Link
	for _, link := range list {
		switch {
		case !link.valid(now):
		case link.Revoked:
			revoked = append(revoked, link)
		default:
			l.add(link, now)
		}
	}
	l.revoke(revoked, now)
}

// valid reports whether a link of another process can be one. Its clock or the one here may be wrong, which must not lose a revoked one.
func (link Link) valid(now time.Time) bool {
	end := link.Expires
	if link.Revoked {
		end = end.Add(expiredFor)
	}
	return validID(link.ID) && now.Before(end) && link.Expires.Before(now.Add(MaxLife+setBack))
}

func validID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == idBytes && strings.ToLower(id) == id
}

package access_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/internal/clocktest"
)

// kept is a state file.
type kept map[string]json.RawMessage

func (k kept) keep(id string, value json.RawMessage) {
	if k[id] = value; value == nil {
		delete(k, id)
	}
}

// TestRevoke: a revoked link and those that its holder made are not valid, end what uses them, and stay revoked over a restart.
func TestRevoke(t *testing.T) {
	t.Parallel()
	now, file := time.Now(), kept{}
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more", Links: access.NewLinks(nil, file.keep, now)}
	link := func(by access.Grant, name string) (string, access.Grant) {
		g := access.Grant{Rooms: []string{"final"}, Rights: access.AllInRoom, Name: name, Expires: now.Add(time.Hour), Links: by.Links}
		token, err := access.Sign(keys, g, now)
		require.NoError(t, err)
		id := keys.Links.Made(token, g, "the page", now)
		g, err = access.Verify(keys, token, now)
		require.NoError(t, err)
		require.Equal(t, id, g.Links[0])
		return token, g
	}
	ann, anns := link(access.Grant{}, "Ann")
	bob, bobs := link(anns, "Bob")
	cleo, cleos := link(bobs, "Cleo")
	eve, eves := link(access.Grant{}, "Eve")
	require.Len(t, keys.Links.List("final", "", now), 4)
	require.Empty(t, keys.Links.List("other", "", now))

	var ended []string
	for _, g := range []access.Grant{anns, bobs, cleos, eves} {
		defer keys.Links.Watch(g, time.Now, func(err error) {
			require.ErrorIs(t, err, access.ErrRevoked)
			ended = append(ended, g.Name)
		})()
	}
	require.ErrorIs(t, keys.Links.Revoke("other", bobs.Links[0], anns.Links[0], now), access.ErrNoLink)
	require.ErrorIs(t, keys.Links.Revoke("final", "ffffffffffffffff", anns.Links[0], now), access.ErrNoLink)
	require.ErrorIs(t, keys.Links.Revoke("final", "none", "", now), access.ErrNoLink)
	for _, by := range []access.Grant{bobs, cleos, eves} {
		require.ErrorIs(t, keys.Links.Revoke("final", bobs.Links[0], by.Links[0], now), access.ErrNoLink, "%s: not below it", by.Name)
		require.ErrorIs(t, keys.Links.Revoke("final", anns.Links[0], by.Links[0], now), access.ErrNoLink, "%s: not below it", by.Name)
	}
	require.NoError(t, keys.Links.Revoke("final", bobs.Links[0], anns.Links[0], now))
	require.NoError(t, keys.Links.Revoke("final", bobs.Links[0], anns.Links[0], now), "again")
	require.ElementsMatch(t, []string{"Bob", "Cleo"}, ended)

	later := now.Add(30 * time.Minute)
	restarted := keys
	restarted.Links = access.NewLinks(file, file.keep, later)
	other := keys // in the same room
	other.Links = access.NewLinks(nil, kept{}.keep, later)
	other.Links.Learn("final", keys.Links.Shared("final", later), later)
	next := keys // after a hand-over
	next.Links = access.NewLinks(nil, kept{}.keep, later)
	next.Links.Restore(keys.Links.HandOver("final", later), later)
	require.Len(t, next.Links.List("final", "", later), 4)
	for name, k := range map[string]access.Keys{"here": keys, "restarted": restarted, "other": other, "next": next} {
		for token, want := range map[string]error{ann: nil, bob: access.ErrRevoked, cleo: access.ErrRevoked, eve: nil} {
			_, err := access.Verify(k, token, later)
			require.ErrorIs(t, err, want, name)
		}
		_, err := k.Marked(k.Mark(cleos.Links))
		require.ErrorIs(t, err, access.ErrRevoked, name)
		links, err := k.Marked(k.Mark(eves.Links))
		require.NoError(t, err, name)
		require.Equal(t, eves.Links, links, name)
	}
	expired := access.NewLinks(file, file.keep, now.Add(2*time.Hour))
	require.Empty(t, expired.List("final", "", now.Add(2*time.Hour)))
	id := expired.Made("token", access.Grant{Rooms: []string{"final"}, Expires: now.Add(5 * time.Hour)}, "", now.Add(4*time.Hour))
	require.Len(t, file, 1)
	require.Contains(t, file, id)
	access.NewLinks(file, file.keep, now.AddDate(0, 2, 0))
	require.Empty(t, file)
}

// TestLinksAndTheWallClock: a link ends by the wall clock, whichever way it is set and however often, and a revoked one never works again.
func TestLinksAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		for _, change := range []string{"none", "restart", "hand-over", "another commentator"} {
			now, file := time.Now(), kept{}
			keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more", Links: access.NewLinks(nil, file.keep, now)}
			link := func(name string, life time.Duration) string {
				g := access.Grant{Rooms: []string{"final"}, Rights: access.Watch, Name: name, Expires: now.Add(life)}
				token, err := access.Sign(keys, g, now)
				require.NoError(t, err)
				keys.Links.Made(token, g, "", now)
				return token
			}
			good, bad, long := link("good", 30*time.Minute), link("bad", 30*time.Minute), link("long", access.MaxLife)
			_, err := access.Verify(keys, bad, now)
			require.NoError(t, err)
			for _, x := range keys.Links.List("final", "", now) {
				if x.Name != "good" {
					require.NoError(t, keys.Links.Revoke("final", x.ID, "", now))
				}
			}
			later := clocktest.Step(now.Add(time.Minute), step)
			over, left, shown := step > 0, 4, 3
			before := keys.Links
			switch change {
			case "restart":
				keys.Links = access.NewLinks(file, file.keep, later)
			case "hand-over":
				keys.Links = access.NewLinks(nil, nil, later)
				keys.Links.Restore(before.HandOver("final", later), later)
				if over {
					left = 3 // good has looked expired
				}
			case "another commentator":
				keys.Links = access.NewLinks(nil, nil, later)
				keys.Links.Learn("final", before.Shared("final", later), later)
				left, shown = 3, 2 // good was not revoked
			}
			if over {
				shown = 1 // long
			}
			require.Len(t, keys.Links.List("final", "", later), shown, "%v %s", step, change)
			_, err = access.Verify(keys, good, later)
			require.Equal(t, over, err != nil, step)
			keys.Links.Made("another", access.Grant{Rooms: []string{"final"}, Expires: later.Add(2 * time.Hour)}, "", later)

			right := now.Add(2 * time.Minute) // the clock is set right
			require.Len(t, keys.Links.List("final", "", right), left, "%v %s", step, change)
			_, err = access.Verify(keys, good, right)
			require.NoError(t, err, step)
			for _, token := range []string{bad, long} {
				_, err = access.Verify(keys, token, right)
				require.ErrorIs(t, err, access.ErrRevoked, "%v %s", step, change)
			}
		}
	}
}

// TestWatchAndTheWallClock: what a link opened ends within seconds when the clock shows its end.
func TestWatchAndTheWallClock(t *testing.T) {
	t.Parallel()
	const life = 30 * time.Minute
	for step, want := range map[time.Duration]time.Duration{
		0: life, -time.Hour: life + time.Hour, time.Hour: time.Minute, 31 * 24 * time.Hour: time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var stepped, ended, other atomic.Int64
			links := access.NewLinks(nil, nil, began)
			clock := func() time.Time { return time.Now().Add(time.Duration(stepped.Load())) } // a bubble's times have no monotonic reading
			watch := func(at *atomic.Int64) (stop func()) {
				return links.Watch(access.Grant{Expires: began.Add(life).Round(0)}, clock, func(err error) {
					require.ErrorIs(t, err, access.ErrExpired)
					at.Store(int64(time.Since(began)))
				})
			}
			watch(&ended)
			stop := watch(&other)
			time.Sleep(time.Minute - time.Millisecond)
			stepped.Store(int64(step))
			stop()
			time.Sleep(2 * time.Hour)
			require.InDelta(t, want.Seconds(), time.Duration(ended.Load()).Seconds(), 5, step)
			require.Zero(t, other.Load())
		})
	}
}

// TestGeneration: links of another generation are not valid.
func TestGeneration(t *testing.T) {
	t.Parallel()
	now := time.Now()
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	next := keys
	next.Generation = "2027/spring"
	token, err := access.Sign(keys, access.Grant{Rooms: []string{"final"}, Rights: access.Watch, Expires: now.Add(time.Hour)}, now)
	require.NoError(t, err)
	_, err = access.Verify(keys, token, now)
	require.NoError(t, err)
	_, err = access.Verify(next, token, now)
	require.ErrorIs(t, err, access.ErrBadToken)
	_, err = next.Marked(keys.Mark([]string{"a"}))
	require.ErrorIs(t, err, access.ErrRevoked)
	_, err = next.Marked(next.Mark([]string{"a"}))
	require.NoError(t, err)
}

// TestLinksAreBounded: a room lists a bounded number of links, and does not forget one that is revoked. Another room is not affected.
func TestLinksAreBounded(t *testing.T) {
	t.Parallel()
	now, file := time.Now(), kept{}
	links := access.NewLinks(nil, file.keep, now)
	made := func(room string, i int) string {
		g := access.Grant{Rooms: []string{room}, Expires: now.Add(time.Hour - time.Duration(i)*time.Second)}
		return links.Made(fmt.Sprint(room, i), g, "", now.Add(time.Duration(i)*time.Microsecond))
	}
	mine := made("mine", 0)
	var ids []string
	for i := range 1000 {
		ids = append(ids, made("full", i))
		if i < 50 {
			require.NoError(t, links.Revoke("full", ids[i], "", now))
		}
	}
	require.Len(t, links.List("full", "", now), 150, "besides the revoked ones")
	listed, revoked, refused := links.Stats(now)
	require.Equal(t, 101, listed, "with mine")
	require.Equal(t, 50, revoked)
	require.Equal(t, access.Refused{Unlisted: 850}, refused)
	require.True(t, links.Revoked(ids[:1]), "the first")
	require.Equal(t, ids[999], links.List("full", "", now)[0].ID, "the last")
	for _, link := range links.List("full", "", now) {
		require.NoError(t, links.Revoke("full", link.ID, "", now))
	}
	require.Equal(t, made("full", 1000), links.List("full", "", now)[0].ID)
	require.Len(t, links.List("full", "", now), 151)
	require.Len(t, file, 152)
	for i := range 1000 { // the operator's are not bounded by those
		require.NoError(t, links.Revoke("full", fmt.Sprintf("%016X", i), "", now.Add(time.Duration(i+1)*time.Second)))
	}
	require.Len(t, links.List("full", "", now), 1151)
	require.True(t, links.Revoked([]string{"00000000000003e7"}), "in lower case")
	shared := links.Shared("full", now)
	require.Less(t, len(shared), 28_000)
	require.Contains(t, shared, "00000000000003e7", "the last")
	require.NotContains(t, shared, ids[0], "the first")
	require.Equal(t, mine, links.List("mine", "", now)[0].ID)
	require.NoError(t, links.Revoke("mine", mine, "", now))

	links.Learn("mine", "a:1,:,x,"+strings.Repeat("g", 16)+":99999999999,"+strings.Repeat("e", 16)+":1", now)
	require.Len(t, links.List("mine", "", now), 1)
}

// club makes links of the room "club".
type club struct {
	t      *testing.T
	keys   access.Keys
	now    time.Time
	tokens []string
}

func newClub(t *testing.T, keep func(id string, value json.RawMessage)) *club {
	t.Helper()
	now := time.Now()
	return &club{t: t, now: now, keys: access.Keys{
		APIKey: "key", APISecret: "a secret of thirty-two characters or more", Links: access.NewLinks(nil, keep, now),
	}}
}

// link makes a link with another one, a millisecond later; with the zero Grant it is the operator's.
func (c *club) link(by access.Grant, name string) access.Grant {
	c.t.Helper()
	c.now = c.now.Add(time.Millisecond)
	g := access.Grant{Rooms: []string{"club"}, Rights: access.AllInRoom, Name: name, Expires: c.now.Add(time.Hour), Links: by.Links}
	token, err := access.Sign(c.keys, g, c.now)
	require.NoError(c.t, err)
	c.keys.Links.Made(token, g, by.Name, c.now)
	g, err = access.Verify(c.keys, token, c.now)
	require.NoError(c.t, err)
	c.tokens = append(c.tokens, token)
	return g
}

// names are those of the links that the holder of one sees; "" is the operator.
func (c *club) names(by string) (out []string) {
	for _, x := range c.keys.Links.List("club", by, c.now) {
		out = append(out, x.Name)
	}
	return out
}

// TestHoldersBelow: the holder of a link that was made from another one hides neither itself nor the others of its maker, who can revoke it.
func TestHoldersBelow(t *testing.T) {
	t.Parallel()
	for _, revoked := range []bool{false, true} {
		c := newClub(t, nil)
		link, links := c.link, c.keys.Links
		names := func(by access.Grant) []string { return c.names(by.Links[0]) }
		root := link(access.Grant{}, "root")
		helper, other := link(root, "helper"), link(root, "other")
		for i := range 250 {
			below := link(helper, fmt.Sprint("below ", i))
			link(below, fmt.Sprint("further below ", i))
			if revoked {
				_ = links.Revoke("club", below.Links[0], helper.Links[0], c.now)
			}
		}
		require.Subset(t, names(root), []string{"helper", "other"})
		require.Len(t, names(root), 25)
		for i := range 23 {
			link(root, fmt.Sprint("late ", i))
		}
		stranger := link(access.Grant{}, "stranger")
		link(link(stranger, "deep"), "deeper")
		require.Equal(t, []string{"deeper", "deep"}, names(stranger))
		require.Subset(t, names(root), []string{"helper", "other", "late 0", "late 22"})
		require.LessOrEqual(t, len(names(root)), 50)
		require.NoError(t, links.Revoke("club", helper.Links[0], root.Links[0], c.now))
		require.ErrorIs(t, links.Revoke("club", other.Links[0], helper.Links[0], c.now), access.ErrNoLink)
		require.True(t, links.Revoked(helper.Links))
		require.False(t, links.Revoked(other.Links))
	}
}

// TestLinksOfOneHolder: of ten times as many links as may be listed that one holder and theirs made, that many are listed, each with the
// operator's, and no other link leaves the list. Once the operator has revoked the origin of all that is listed, none works.
func TestLinksOfOneHolder(t *testing.T) {
	t.Parallel()
	file := kept{}
	c := newClub(t, file.keep)
	link, links := c.link, c.keys.Links
	hostile, honest := link(access.Grant{}, "hostile"), link(access.Grant{}, "honest")
	guest := link(honest, "guest")
	const most = 25
	below := link(hostile, "below")
	for i := range 10 * most / 2 {
		link(hostile, fmt.Sprint(i))
		link(below, fmt.Sprint(i))
	}
	require.Len(t, c.names(""), 3+most)
	require.Subset(t, c.names(""), []string{"hostile", "honest", "guest"})
	for i := range 10 * most { // also with revoked ones, until all listed ones are
		_ = links.Revoke("club", link(hostile, fmt.Sprint("revoked ", i)).Links[0], hostile.Links[0], c.now)
	}
	link(hostile, "unlisted")
	require.Len(t, c.names(""), 3+most)
	require.Equal(t, []string{"guest"}, c.names(honest.Links[0]))
	require.ErrorIs(t, links.Revoke("club", guest.Links[0], hostile.Links[0], c.now), access.ErrNoLink)

	other := access.NewLinks(file, nil, c.now) // after a restart
	was, err := json.Marshal(links.List("club", "", c.now))
	require.NoError(t, err)
	is, err := json.Marshal(other.List("club", "", c.now))
	require.NoError(t, err)
	require.JSONEq(t, string(was), string(is))
	other = access.NewLinks(nil, nil, c.now) // after a hand-over
	other.Restore(links.HandOver("club", c.now), c.now)
	require.Len(t, other.List("club", "", c.now), 3+most)

	for _, x := range links.List("club", "", c.now) {
		root := append([]string{x.ID}, x.Makers...)[len(x.Makers)]
		require.NoError(t, links.Revoke("club", root, "", c.now))
	}
	for _, token := range c.tokens {
		_, err := access.Verify(c.keys, token, c.now)
		require.ErrorIs(t, err, access.ErrRevoked)
	}
	for _, x := range links.List("club", "", c.now) {
		require.True(t, x.Revoked, x.Name)
	}
	link(access.Grant{}, "new of the operator")
	require.Equal(t, "new of the operator", c.names("")[0])
}

// TestEarlierLinks: links of the state file of an earlier version are listed as the operator's, and those that are made with them name them.
func TestEarlierLinks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	end := now.Add(time.Hour).UTC().Format(time.RFC3339)
	past := map[string]json.RawMessage{"00000000000000aa": json.RawMessage(
		`{"id":"00000000000000aa","room":"club","name":"Ann","rights":["watch"],"by":"the page","made":"` + end + `","expires":"` + end + `"}`)}
	links := access.NewLinks(past, nil, now)
	g := access.Grant{Rooms: []string{"club"}, Rights: access.Watch, Expires: now.Add(time.Hour), Links: []string{"00000000000000aa"}}
	id := links.Made("a token", g, "Ann", now)
	list := links.List("club", "", now)
	require.Len(t, list, 2)
	require.Empty(t, list[0].Makers)
	require.Equal(t, "Ann", list[0].Name)
	require.Equal(t, []string{"00000000000000aa"}, list[1].Makers)
	require.NoError(t, links.Revoke("club", id, "00000000000000aa", now))
	require.NoError(t, links.Revoke("club", "00000000000000aa", "", now))
}

// TestLearnedLinksAreBounded: of ten times as many revoked links of other commentators as a room may have, that many are learned. A link
// that is listed here is revoked also after that.
func TestLearnedLinksAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	links := access.NewLinks(nil, nil, now)
	mine := links.Made("mine", access.Grant{Rooms: []string{"full"}, Expires: now.Add(time.Hour)}, "", now)
	learn := func(id string) { links.Learn("full", fmt.Sprintf("%s:%d", id, now.Add(time.Hour).Unix()), now) }
	const most = 10_000
	for i := range 100 {
		var list []string
		for n := range most / 10 {
			list = append(list, fmt.Sprintf("%016x:%d", 1+i*most/10+n, now.Add(time.Hour).Unix()))
		}
		links.Learn("full", strings.Join(list, ","), now)
	}
	listed, revoked, refused := links.Stats(now)
	require.Equal(t, 1, listed)
	require.Equal(t, most-1, revoked)
	require.Equal(t, access.Refused{Unlearned: 9*most + 1}, refused)
	learn(mine)
	require.True(t, links.Revoked([]string{mine}))
	links.Learn("other", fmt.Sprintf("%s:%d", strings.Repeat("f", 16), now.Add(time.Hour).Unix()), now)
	require.True(t, links.Revoked([]string{strings.Repeat("f", 16)}), "of another room")
}

// TestLinksOfLinks: a link is made by the holder of a link at most 8 times over, each with the bounds of the first. Uses of ended ones
// are counted.
func TestLinksOfLinks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more", Links: access.NewLinks(nil, nil, now)}
	g := access.Grant{Rooms: []string{"final"}, Rights: access.AllInRoom, Expires: now.Add(time.Hour)}
	require.Empty(t, g.Root())
	made, root, last := 0, "", ""
	for range 80 {
		token, err := access.Sign(keys, g, now)
		if err != nil {
			require.ErrorContains(t, err, "one of the first 8")
			continue
		}
		last = token
		g, err = access.Verify(keys, token, now)
		require.NoError(t, err)
		if made++; made == 1 {
			root = g.Links[0]
		}
		require.Equal(t, root, g.Root())
	}
	require.Equal(t, 9, made)
	for range 5 {
		_, err := access.Verify(keys, last, now.Add(2*time.Hour))
		require.ErrorIs(t, err, access.ErrExpired)
	}
	require.NoError(t, keys.Links.Revoke("final", root, "", now))
	_, err := access.Verify(keys, last, now)
	require.ErrorIs(t, err, access.ErrRevoked)
	_, revoked, refused := keys.Links.Stats(now)
	require.Equal(t, 1, revoked)
	require.Equal(t, access.Refused{Deep: 71, Expired: 5, Revoked: 1}, refused)
}

// TestExpiredLinksAreBounded: links that are revoked and expired take no place in the list of a room, and are bounded while the clock may
// be wrong. Then they are forgotten, and not learned again.
func TestExpiredLinksAreBounded(t *testing.T) {
	t.Parallel()
	now, file := time.Now(), kept{}
	links := access.NewLinks(nil, file.keep, now)
	made := func(name string, life time.Duration) string {
		return links.Made(name, access.Grant{Rooms: []string{"final"}, Expires: now.Add(life)}, "", now)
	}
	revoked := func(id string) string {
		require.NoError(t, links.Revoke("final", id, "", now))
		return id
	}
	first, good := revoked(made("first", time.Minute)), made("good", 3*time.Hour)
	for i := range 2000 {
		revoked(made(fmt.Sprint("flood", i), time.Minute))
		if i%50 == 49 {
			now = now.Add(time.Minute)
		}
		require.NotNil(t, file[good])
	}
	require.Less(t, len(file), 1100)
	require.True(t, links.Revoked([]string{first}))
	for i := range 99 {
		made(fmt.Sprint("short", i), time.Minute)
	}
	now = now.Add(time.Minute)
	for i := range 99 {
		made(fmt.Sprint("list", i), 3*time.Hour)
	}
	require.Len(t, links.List("final", "", now), 100)
	require.NotNil(t, file[good], "expired ones go first")
	made("one more", 3*time.Hour)
	require.Len(t, links.List("final", "", now), 100)
	require.Nil(t, file[good], "the oldest")

	shared := links.Shared("final", now)
	require.Contains(t, shared, first)
	now = now.Add(time.Hour)
	require.Empty(t, links.Shared("final", now))
	links.Learn("final", shared, now)
	require.Len(t, file, 100)
}

// FuzzLearn: whatever an attribute says, only valid ids are learned, as revoked links of its room, and as many as it has.
func FuzzLearn(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	id := strings.Repeat("e", 16)
	for _, shared := range []string{
		"", id, id + ":1800003600", id + ":1800003600," + strings.Repeat("0", 16) + ":1800007200", id + ":1", id + ":9223372036854775807",
		strings.ToUpper(id) + ":1800003600", "a:1,:,x," + strings.Repeat("g", 16) + ":1800003600", id + ":-1", ",,,",
	} {
		f.Add(shared)
	}
	f.Fuzz(func(t *testing.T, shared string) {
		file := kept{}
		links := access.NewLinks(nil, file.keep, now)
		other := links.Made("mine", access.Grant{Rooms: []string{"other"}, Expires: now.Add(time.Hour)}, "", now)
		links.Learn("final", shared, now)
		list := links.HandOver("final", now)
		require.LessOrEqual(t, len(list), strings.Count(shared, ",")+1)
		require.Len(t, file, len(list)+1)
		require.Len(t, links.List("other", "", now), 1)
		require.False(t, links.Revoked([]string{other}) && !strings.Contains(shared, other))
		for _, link := range list {
			require.True(t, link.Revoked && link.Room == "final" && strings.Contains(shared, link.ID+":"), link)
		}
		again := access.NewLinks(nil, nil, now)
		again.Learn("final", links.Shared("final", now), now)
		require.Len(t, again.HandOver("final", now), min(len(list), 1000))
	})
}

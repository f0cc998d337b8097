package grammar

// side is one of the two teams of a match.
type side int8

// The sides; the zero value is neither.
const (
	neither side = iota
	home
	away
)

// sideOf returns the side with an index, 0 or 1; neither for nil.
func sideOf(index *int) side {
	if index == nil {
		return neither
	}
	return side(*index + 1)
}

// index returns the index of a side other than neither.
func (s side) index() int { return int(s) - 1 }

func (s side) other() side { return home + away - s }

// key distinguishes news of one kind. The zero key is for news without one.
type key struct {
	text    string
	count   int
	numbers [3]int
}

func keyOf(numbers ...int) key {
	k := key{count: len(numbers)}
	copy(k.numbers[:], numbers)
	return k
}

// id returns the number of a person, car or animal in a key with one number.
func (k key) id() int { return k.numbers[0] }

// newsID is a kind of news with its key.
type newsID struct {
	kind string
	key  key
}

// News is something worth reporting: a kind of wording, and the values for it. A nil *News means no news.
type News struct {
	Kind string

	key       key
	team      side
	number    int // shirt number; 0 for none
	zone      string
	at        float64  // time of the event, in seconds
	coat, car string   // colours
	also      *News    // another event that the same comment reports
	known     []newsID // news of this comment and the two before it
}

func (n *News) id() newsID { return newsID{n.Kind, n.key} }

// is reports whether two pieces of news are the same.
func (n *News) is(other *News) bool { return n != nil && n.id() == other.id() }

// kindOf returns the kind of news; "" for nil.
func kindOf(n *News) string {
	if n == nil {
		return ""
	}
	return n.Kind
}

// as returns the news with another kind of wording.
func (n *News) as(kind string) *News {
	out := *n
	out.Kind = kind
	return &out
}

// Order is an instruction by a person.
type Order struct {
	Kind string
	Text string
	// Coat is the colour of the coat in a yard's order.
	Coat string

	team   side
	number int
}

// NewOrder returns an order about a team (0, 1 or nil for none), a shirt number, and a coat, as far as its kind uses them.
func NewOrder(kind string, team *int, number int, coat string) Order {
	return Order{Kind: kind, Coat: coat, team: sideOf(team), number: number}
}

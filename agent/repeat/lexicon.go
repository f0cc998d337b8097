package repeat

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// kind is what a word says about the difference of two comments.
type kind uint8

const (
	plain     kind = iota // one of many words
	filler                // no news: "the", "still"
	guard                 // news that a repeat cannot have
	colour                // a guard that also names a team or a person
	negation              // "not", "nobody"
	direction             // the next word has a role: "to", "from"
	place                 // the next word is a place
)

// concept is a line of the lexicon.
type concept struct {
	text string // its first word
	kind kind
}

// Lexicon has what the comparison of comments knows about words. Its languages are mixed, because few words are in two of them.
type Lexicon struct {
	concepts  map[string]concept
	forms     []string       // the words whose inflected forms are looked up as well
	particles []string       // guards at the end of a clause
	between   []string       // between the numbers of a score
	numbers   map[string]int // in words
}

// New returns the words that the program knows. They are read only.
func New() *Lexicon {
	l := &Lexicon{
		concepts: map[string]concept{}, numbers: map[string]int{},
		particles: strings.Fields(particleWords), between: strings.Fields(betweenWords),
	}
	for _, part := range []struct {
		kind  kind
		lines string
	}{
		{filler, fillerWords},
		{negation, notWords},
		{direction, directionWords},
		{place, placeWords},
		{plain, sameWords},
		{guard, guardWords},
		{colour, colourWords},
	} {
		for line := range strings.Lines(part.lines) {
			words := strings.Fields(line)
			for _, w := range words {
				w = strings.ReplaceAll(w, "_", " ")
				l.concepts[w] = concept{words[0], part.kind}
				if len(w) > 3 && (part.kind == plain || part.kind == guard) {
					l.forms = append(l.forms, w)
				}
			}
		}
	}
	for line := range strings.Lines(numberWords) {
		words := strings.Fields(line)
		for _, w := range words[min(1, len(words)):] {
			l.numbers[w], _ = strconv.Atoi(words[0])
		}
	}
	return l
}

// longestPhrase is the number of tokens in the longest phrase of the lexicon.
const longestPhrase = 4

// join makes one token of each phrase.
func (l *Lexicon) join(list []token) []token {
	var out []token
	for len(list) > 0 {
		t, used := list[0], 1
		space := " "
		if t.ideograph {
			space = ""
		}
		text := t.text
		for n := 1; n < min(longestPhrase, len(list)) && !list[n-1].last; n++ {
			text += space + list[n].text
			if _, ok := l.concepts[text]; ok {
				t.text, t.last, used = text, list[n].last, n+1
			}
		}
		out, list = append(out, t), list[used:]
	}
	return out
}

// concept returns the concept of a word, and whether the lexicon has it.
func (l *Lexicon) concept(t token) (c concept, listed bool) {
	if c, ok := l.concepts[t.text]; ok {
		return c, true
	}
	if t.ideograph {
		kind := plain
		if unicode.Is(unicode.Hiragana, []rune(t.text)[0]) {
			kind = filler
		}
		return concept{t.text, kind}, false
	}
	// Adverbs of manner.
	if strings.HasSuffix(t.text, "mente") || len(t.text) > 5 && strings.HasSuffix(t.text, "ly") {
		return concept{kind: filler}, true
	}
	if i := slices.IndexFunc(l.forms, func(f string) bool { return inflected(f, t.text) }); i >= 0 {
		return l.concepts[l.forms[i]], true
	}
	return concept{text: t.text}, false
}

const (
	particleWords  = "in on off out up down away over through"
	betweenWords   = "to a all 比 対"
	directionWords = "to from by a 给"
	placeWords     = "at in on near into onto over across along through towards beside next_to close_to in_front_of en por junto hacia"
)

const fillerWords = `
a an the this that these those some its his her hers their our he she they it we you him them there here i
is are was were be been being am has have had do does did 's
keep keeps kept keeping continue continues continuing remain remains remaining still now again very really
quite just too also already
right_now right_next_to once_more full_speed great_power gran_fuerza gran_entusiasmo
mucho_entusiasmo muy_rápido each_other a_bit a_little in_the_front front of with and as
for then so what which who while when one once
both own down up around toward inside next more great much loud fast
number team teams wear wears wearing side st nd rd th
someone somebody something
un una unos unas el la los las lo le les se su sus este esta ese esa de del al con y e que
en es está están estar ha han sido
sigue siguen seguir siguiendo ya ya_van muy mucho mucha gran aún todavía ahora también
poco vuelve_a vuelven_a de_nuevo otra_vez para sobre cerca él ella ellos hay tiene tienen
equipo equipos número alguien favor marcador lado a_favor un_poco nuevamente
的 了 着 在 正 又 再 还 已 经 仍 然 一 名 个 辆 只 把 从 往 里 处 这 那 就 都 也 向 于 被 地 得 条 位 队 号 沿 住 下 与 和
正在 继续 仍然 已经 发起
チ ー ム
`

// notWords negate a sentence.
const notWords = `
not no never nobody nothing none without isn't aren't doesn't don't
sin nadie nunca nada
没 不 无 未
`

// sameWords have one meaning in each line.
const sameWords = `
keeper goalkeeper goalie
centre center middle
metre meter metres meters
parcel package
person people
child kid
car vehicle
truck lorry
bicycle bike
cyclist biker
cook chef
fans supporters crowd spectators
pitch field
street road
camera picture image view
sofa couch
attack attacks attacking push pushes pushing press presses pressing
shot shoot shoots shooting fires strikes
pass passes passing passed
lose loses losing lost
hold holds holding held
show shows showing shown give gives giving gave given get gets got receive receives award awarded
put puts putting place places placed
stand stands standing stood
sit sits sitting sat
throw throws throwing threw thrown
go goes going went gone
come comes coming came comen comiendo comido
drive drives driving drove driven
catch catches catching caught
fly flies flying flew
eat eats eating ate
find found
ring rings rang rung
tell told
see saw seen
grow grew
rise rises rose rising
shake shook
slide slid
spin spun
swing swung
win won
feed fed
fight fought
hide hid
lead led
meet met
ride rode riding
send sent
sweep swept
strike struck
write wrote
draw drew
blow blew
light lit
dig dug
hang hung
sentarse sienta sientan sentado sentando
encender enciende encendido encendida
servir sirve sirviendo
volar vuela vuelan volando
jugar juega juegan jugando
rodar rueda rodando
move moves moving moved
wait waits waiting
cut slice chop
sleep asleep
small little tiny
large big huge
quick fast rapid
quiet calm
talk chat
rain raining
lie lies lying lay
run runs running ran
moverse mueve mueven moviendo mover
remover remueve remueven removiendo
dormir duerme duermen durmiendo dormido dormida
hervir hierve hierven hirviendo
llover llueve lloviendo
volver vuelve vuelven volviendo
perder pierde pierden perdido perdiendo
verter vierte vierten vertiendo
sostener sostiene sostienen sosteniendo
pasar pasa pasan pase pasado pasando
parar paran parado parando para_en para_delante para_junto para_frente para_ante para_cerca
mostrar muestra muestran mostrando
disparo dispara disparan disparando tiro tira
jugador jugadores
portero guardameta
pájaro pajarito
grande enorme
pequeño pequeña
`

// guardWords are sides, events and their opposites.
const guardWords = `
left izquierda izquierdo 左
right derecha derecho 右
open opens opened opening abre abren abrir abierto abierta abriendo 开
close closes closed closing shut cierra cierran cerrar cerrado cerrando 关 閉
enter enters entered entering comes_in come_in coming_in walks_in drives_in walking_in driving_in entra entran entrar entrando 进 走进
leave leaves leaving exit exits has_left have_left sale salen salir saliendo 出
score scores scored scoring goal goals gol goles golazo marca marcan marcar 进球 得分 ゴ
miss misses missed missing wide falla fallan fallar fuera
save saves saved saving
penalty penalti 点球
corner corner_kick córner 角球
foul
half parte
away
off
out
up
another otro otra otros otras
levanta levantan levantarse levantado
first primero primera primer
second segundo segunda
third tercero tercera
start starts started starting empieza empiezan empezar comienza comienzan
woman women mujer mujeres 女
man men hombre hombres 男
dog dogs perro perros 狗 犬
cat cats gato gatos 猫
fall falls fell falling cae caen caer
fire burning burns fuego
take takes took taken taking recoge recogen recoger 拿
`

const colourWords = `
red rojo roja rojos rojas 红 赤
blue azul azules 蓝 青
white blanco blanca blancos blancas 白
black negro negra negros negras 黑 黒
yellow amarillo amarilla amarillos amarillas 黄
green verde verdes 绿 緑
orange naranja
grey gray gris 灰
brown marrón
purple violet morado morada
pink rosa
sky celeste
`

const numberWords = `
0 zero nil cero 零
1 one uno 一
2 two dos 二 两
3 three tres 三
4 four cuatro 四
5 five cinco 五
6 six seis 六
7 seven siete 七
8 eight ocho 八
9 nine nueve 九
10 ten diez 十
11 eleven
12 twelve doce
13 thirteen trece
14 fourteen catorce
15 fifteen quince
16 sixteen dieciséis
17 seventeen diecisiete
18 eighteen dieciocho
19 nineteen diecinueve
20 twenty veinte
30 thirty treinta
40 forty cuarenta
50 fifty cincuenta
60 sixty sesenta
70 seventy setenta
80 eighty ochenta
90 ninety noventa
`

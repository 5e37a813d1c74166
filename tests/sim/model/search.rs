//! Visits every state of a world once, breadth first.
//!
//! A state is four numbers: those of its nodes, and that of the rest. Few distinct nodes and fleets make many states,
//! so that a world of ten million states fits into a gigabyte.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::model::settled::is_settled;
use crate::model::state::{Budget, Fleet, Late, MAX_NODES, Node, State, World};
use crate::model::step::{Operator, Who, steps};

/// A fast hash.
#[derive(Default)]
pub struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        let mut h = self.0;
        h ^= h >> 32;
        h = h.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        h ^ (h >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }
}

type Folding = BuildHasherDefault<Fold>;

/// Assigns a number to each distinct value.
#[derive(Default)]
struct Numbered<T> {
    things: Vec<T>,
    known: HashMap<T, u32, Folding>,
}

impl<T: Copy + Eq + Hash> Numbered<T> {
    fn number(&mut self, thing: &T) -> u32 {
        if let Some(known) = self.known.get(thing) {
            return *known;
        }
        let number = self.things.len() as u32;
        self.things.push(*thing);
        self.known.insert(*thing, number);
        number
    }
}

/// A state without its nodes.
type Rest = (Fleet, Budget, u8, Option<Late>);
type Packed = [u32; MAX_NODES + 1];

fn hash_of(packed: &Packed) -> u64 {
    let mut hasher = Fold::default();
    for number in packed {
        hasher.write_u32(*number);
    }
    hasher.finish()
}

/// The distinct states, by number.
#[derive(Default)]
struct States {
    nodes: Numbered<Node>,
    rests: Numbered<Rest>,
    all: Vec<Packed>,
    /// An open-addressing hash table of state numbers.
    places: Vec<u32>,
}

const EMPTY: u32 = u32::MAX;

impl States {
    fn get(&self, index: usize) -> State {
        let packed = &self.all[index];
        let (fleet, left, broken, late) = self.rests.things[packed[MAX_NODES] as usize];
        let nodes = std::array::from_fn(|i| self.nodes.things[packed[i] as usize]);
        State { fleet, nodes, left, broken, late }
    }

    /// The number of a state; `near` is a similar one, with its number.
    fn put(&mut self, state: &State, near: (&State, Packed)) -> u32 {
        let mut packed = near.1;
        for (i, node) in state.nodes.iter().enumerate() {
            if *node != near.0.nodes[i] {
                packed[i] = self.nodes.number(node);
            }
        }
        let rest = |s: &State| (s.fleet, s.left, s.broken, s.late);
        if rest(state) != rest(near.0) {
            packed[MAX_NODES] = self.rests.number(&rest(state));
        }
        self.insert(packed)
    }

    fn insert(&mut self, packed: Packed) -> u32 {
        if self.all.len() * 8 >= self.places.len() * 5 {
            self.grow();
        }
        let mask = self.places.len() - 1;
        let mut place = hash_of(&packed) as usize & mask;
        while self.places[place] != EMPTY {
            if self.all[self.places[place] as usize] == packed {
                return self.places[place];
            }
            place = (place + 1) & mask;
        }
        self.places[place] = self.all.len() as u32;
        self.all.push(packed);
        self.places[place]
    }

    fn grow(&mut self) {
        let length = (self.places.len() * 2).max(1 << 16);
        self.places = vec![EMPTY; length];
        for (index, packed) in self.all.iter().enumerate() {
            let mut place = hash_of(packed) as usize & (length - 1);
            while self.places[place] != EMPTY {
                place = (place + 1) & (length - 1);
            }
            self.places[place] = index as u32;
        }
    }
}

/// The result of a search.
pub struct Report {
    pub states: usize,
    pub transitions: usize,
    pub settled: usize,
    /// How many of the situations that a world is meant to cover were found.
    pub met: usize,
    /// The violations: how often, and the shortest path to one.
    pub violations: BTreeMap<String, (usize, String)>,
}

struct Search<'a> {
    world: &'a World,
    known: States,
    /// The predecessor of each state.
    came: Vec<u32>,
    violations: BTreeMap<String, (usize, String)>,
}

/// Searches a world.
pub fn explore(world: &World) -> Report {
    let (known, came, violations) = (States::default(), vec![EMPTY], BTreeMap::new());
    let mut search = Search { world, known, came, violations };
    let mut operator = Operator::default();
    let start = world.start();
    let zero = State::default();
    let nothing = [search.known.nodes.number(&zero.nodes[0]); MAX_NODES + 1];
    search.known.rests.number(&(zero.fleet, zero.left, zero.broken, zero.late));
    search.known.put(&start, (&zero, nothing));
    // The successors by spontaneous steps, for each state in turn.
    let (mut first, mut after) = (vec![0_u32], Vec::new());
    let (mut transitions, mut settled, mut met, mut index) = (0, 0, 0, 0);
    while index < search.known.all.len() {
        let state = search.known.get(index);
        let packed = search.known.all[index];
        met += usize::from((world.meets)(&state));
        let found = steps(world, &state, &mut operator);
        for what in found.violations {
            search.violated(what, index);
        }
        if found.edges.iter().all(|e| e.who == Who::World) {
            settled += 1;
            if let Err(what) = is_settled(world, &state) {
                search.violated(what, index);
            }
        }
        for edge in found.edges {
            transitions += 1;
            if edge.next == state {
                continue;
            }
            let to = search.known.put(&edge.next, (&state, packed));
            if to as usize == search.came.len() {
                search.came.push(index as u32);
            }
            if edge.who == Who::System {
                after.push(to);
            }
        }
        first.push(after.len() as u32);
        index += 1;
    }
    if let Some(on_a_circle) = circle(&first, &after) {
        search.violated("C: it goes round in circles by itself".to_owned(), on_a_circle);
    }
    let states = search.known.all.len();
    Report { states, transitions, settled, met, violations: search.violations }
}

impl Search<'_> {
    fn violated(&mut self, what: String, index: usize) {
        if let Some((count, _)) = self.violations.get_mut(&what) {
            *count += 1;
            return;
        }
        let way = self.way_to(index);
        self.violations.insert(what, (1, way));
    }

    fn way_to(&self, index: usize) -> String {
        let mut way = vec![index];
        while self.came[way[way.len() - 1]] != EMPTY {
            way.push(self.came[way[way.len() - 1]] as usize);
        }
        way.reverse();
        let mut operator = Operator::default();
        let taken: Vec<String> = way
            .windows(2)
            .map(|pair| {
                let (from, to) = (self.known.get(pair[0]), self.known.get(pair[1]));
                let edges = steps(self.world, &from, &mut operator).edges;
                let edge = edges.iter().find(|e| e.next == to);
                edge.map_or_else(String::new, |e| format!("{} [{}]", e.what, e.node))
            })
            .collect();
        let state = self.known.get(index);
        let nodes: Vec<String> =
            state.nodes[..self.world.nodes].iter().map(|n| format!("    {n:?}")).collect();
        format!("  {}\n  ends at {:?}\n{}", taken.join("\n  "), state.fleet, nodes.join("\n"))
    }
}

/// A state on a cycle of spontaneous steps, if there is one. From state `i` they lead to `after[first[i]..first[i +
/// 1]]`.
fn circle(first: &[u32], after: &[u32]) -> Option<usize> {
    let states = first.len() - 1;
    let leads = |from: usize| &after[first[from] as usize..first[from + 1] as usize];
    let mut enter = vec![0_u32; states];
    for to in after {
        enter[*to as usize] += 1;
    }
    let mut free: Vec<u32> = (0..states as u32).filter(|i| enter[*i as usize] == 0).collect();
    let mut left = states;
    while let Some(state) = free.pop() {
        left -= 1;
        for next in leads(state as usize) {
            enter[*next as usize] -= 1;
            if enter[*next as usize] == 0 {
                free.push(*next);
            }
        }
    }
    // The rest is on a cycle or behind one; following predecessors leads onto one.
    (left > 0).then(|| {
        let mut into: HashMap<u32, u32> = HashMap::new();
        for from in (0..states).filter(|i| enter[*i] > 0) {
            for to in leads(from).iter().filter(|to| enter[**to as usize] > 0) {
                into.entry(*to).or_insert(from as u32);
            }
        }
        let mut at = enter.iter().position(|n| *n > 0).unwrap_or_default() as u32;
        for _ in 0..states {
            at = into.get(&at).copied().unwrap_or(at);
        }
        at as usize
    })
}

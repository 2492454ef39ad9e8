"""The kernel of structured frequencies as LLVM assembly: transforms in vector registers.

A block of features/hadamard.py takes a record through H D2, then H D1, then radii,
features and sums. The lanes of a vector are features of one record; `hadamard_layout` says
where each feature is at which time. A batch of records stays in the cache while it goes
through four kinds of passes:

1. read: 16-bit columns times the signs D2 and the butterflies of bit 0, which together are
   one multiply-add of pairs; then the butterflies of some vector bits;
2. middle: the other bits of the first transform, lanes included, the signs D1, and the
   same bits of the second transform, all in registers. Small blocks are read here;
3. more butterflies, for large blocks only;
4. last: the bits still missing, phases, features, and their sums over the batch.

Signs D1 are flipped as x xor s with s = 0 or -1, which is one too low where it flips; what
follows is linear modulo 2^32, so the start phases make up for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from privsketch.features.fixedpoint import INDEX_BITS
from privsketch.features.hadamard import TURN_BITS
from privsketch.kernels.fourier import (
    TableFeature,
    mask_bytes,
    mask_of_vector,
    pairwise_products,
    table_code,
)
from privsketch.kernels.layout import Transform
from privsketch.kernels.machine import Writer, integer_vector


def kernel_source(map_name: str, transform: Transform, masked: bool = False) -> str:
    """LLVM assembly of
    void sums(i16* records, n, blocks, i16* signs2, i32* flips, i32* radii, i32* start,
              i32* buffer, i32* sums, masks).

    Records have 2^bits columns; n >= 1. What they add to the sums is added modulo 2^32. If
    `masked`, every record has a bit for each feature, in the order of the sums, and adds
    those whose bit is set; else `masks` is unused.
    """
    w = Writer()
    feature = table_code(map_name, w, transform.lanes)
    feature.declare()
    names = ("signs2", "flips", "radii", "start", "buffer", "sums", "masks")
    pointers = ", ".join(f"ptr noalias %{name}" for name in names)
    w.line(f"define void @sums(ptr noalias %records, i64 %n, i64 %blocks, {pointers}) #0 {{")
    _Kernel(w, transform, feature, masked).write()
    w.line("}")
    return w.finish(32 * transform.lanes)


@dataclass
class _Kernel:
    """Writes the body of the function, pass by pass."""

    w: Writer
    transform: Transform
    feature: TableFeature
    masked: bool
    current: str = "entry"  # the label of the code being written
    tables: dict[str, str] = field(default_factory=dict)

    @property
    def ints(self) -> str:
        return f"<{self.transform.lanes} x i32>"

    @property
    def halves(self) -> str:
        return f"<{2 * self.transform.lanes} x i16>"

    def label(self, name: str) -> None:
        self.w.line(f"{name}:")
        self.current = name

    def write(self) -> None:
        w, transform = self.w, self.transform
        size = 1 << transform.bits
        self.label("entry")
        w.line("  br label %block")
        self.label("block")
        w.line("  %b = phi i64 [0, %entry], [%b_next, %block_end]")
        for name, kind, count in (
            ("signs2", "i16", 2 * size),
            ("flips", "i32", size),
            ("radii", "i32", size),
            ("start", "i32", size),
            ("sums", "i32", 2 * size),
        ):
            offset = w.value(f"mul i64 %b, {count}")
            self.tables[name] = w.value(f"getelementptr {kind}, ptr %{name}, i64 {offset}")
        w.line("  br label %batch")
        self.label("batch")
        w.line("  %first = phi i64 [0, %block], [%first_next, %batch_end]")
        left = w.value("sub i64 %n, %first")
        few = w.value(f"icmp ult i64 {left}, {transform.batch}")
        w.line(f"  %count = select i1 {few}, i64 {left}, i64 {transform.batch}")
        for number, places in enumerate(transform.before):
            self.butterfly_pass(f"before{number}", places, read=number == 0)
        self.middle_pass(read=not transform.before)
        for number, places in enumerate(transform.after):
            self.butterfly_pass(f"after{number}", places, read=False)
        self.last_pass()
        w.line("  br label %batch_end")
        self.label("batch_end")
        w.line("  %first_next = add i64 %first, %count")
        more = w.value("icmp ult i64 %first_next, %n")
        w.line(f"  br i1 {more}, label %batch, label %block_end")
        self.label("block_end")
        w.line("  %b_next = add i64 %b, 1")
        more = w.value("icmp ult i64 %b_next, %blocks")
        w.line(f"  br i1 {more}, label %block, label %done")
        self.label("done")
        w.line("  ret void")

    # --- loops ---------------------------------------------------------------------------------

    def begin(self, tag: str, places: range) -> str:
        """Opens the loop over groups of vectors that differ in `places`; the first one's number."""
        w = self.w
        w.line(f"  br label %{tag}_group")
        w.line(f"{tag}_group:")
        w.line(f"  %g_{tag} = phi i64 [0, %{self.current}], [%g_{tag}_next, %{tag}_group_end]")
        self.current = f"{tag}_group"
        high = w.value(f"lshr i64 %g_{tag}, {places.start}")
        high = w.value(f"shl i64 {high}, {places.stop}")
        low = w.value(f"and i64 %g_{tag}, {(1 << places.start) - 1}")
        return w.value(f"or i64 {high}, {low}")

    def records(self, tag: str, carried: list[str]) -> list[str]:
        """Opens the loop over the batch's records; names of the values carried along."""
        w = self.w
        w.line(f"  br label %{tag}_record")
        w.line(f"{tag}_record:")
        w.line(f"  %r_{tag} = phi i64 [0, %{self.current}], [%r_{tag}_next, %{tag}_record]")
        for k, value in enumerate(carried):
            w.line(
                f"  %carried_{tag}_{k} = phi {self.ints} [{value}, %{self.current}], "
                f"[%new_{tag}_{k}, %{tag}_record]"
            )
        self.current = f"{tag}_record"
        return [f"%carried_{tag}_{k}" for k in range(len(carried))]

    def end_records(self, tag: str, carried: list[str]) -> list[str]:
        """Closes the loop over records; names of what the values carried became."""
        w = self.w
        for k, value in enumerate(carried):
            w.line(f"  %new_{tag}_{k} = add {self.ints} {value}, zeroinitializer")
        w.line(f"  %r_{tag}_next = add i64 %r_{tag}, 1")
        more = w.value(f"icmp ult i64 %r_{tag}_next, %count")
        w.line(f"  br i1 {more}, label %{tag}_record, label %{tag}_group_end")
        self.label(f"{tag}_group_end")
        return [f"%new_{tag}_{k}" for k in range(len(carried))]

    def end(self, tag: str, places: range) -> None:
        """Closes the loop over groups."""
        w = self.w
        w.line(f"  %g_{tag}_next = add i64 %g_{tag}, 1")
        groups = 1 << (self.transform.vector_bits - len(places))
        more = w.value(f"icmp ult i64 %g_{tag}_next, {groups}")
        w.line(f"  br i1 {more}, label %{tag}_group, label %{tag}_done")
        self.label(f"{tag}_done")

    # --- passes --------------------------------------------------------------------------------

    def butterfly_pass(self, tag: str, places: range, *, read: bool) -> None:
        vector = self.begin(tag, places)
        weights = self.weights(vector, places) if read else []
        self.records(tag, [])
        if read:
            values = self.read(tag, vector, places, weights)
        else:
            values = self.load(tag, vector, places)
            self.butterflies(values, range(len(places)))
        self.store(tag, vector, places, values)
        self.end_records(tag, [])
        self.end(tag, places)

    def middle_pass(self, *, read: bool) -> None:
        w, transform, ints = self.w, self.transform, self.ints
        tag, places = "middle", transform.middle
        every = range(len(places))
        vector = self.begin(tag, places)
        weights = self.weights(vector, places) if read else []
        flips = self.addresses("flips", vector, places)
        self.records(tag, [])
        if read:
            values = self.read(tag, vector, places, weights)
        else:
            values = self.load(tag, vector, places)
            self.butterflies(values, every)
        for rotation in transform.rotations:
            self.rotate(values, rotation)
            self.butterflies(values, range(1))
        for k, address in enumerate(flips):
            flip = w.value(f"load {ints}, ptr {address}, align 4")
            values[k] = w.value(f"xor {ints} {values[k]}, {flip}")
        self.butterflies(values, every)
        for rotation in transform.rotations:
            self.rotate(values, rotation)
            self.butterflies(values, range(1))
        self.store(tag, vector, places, values)
        self.end_records(tag, [])
        self.end(tag, places)

    def last_pass(self) -> None:
        w, ints = self.w, self.ints
        tag, places = "last", self.transform.last
        shift = integer_vector(TURN_BITS - INDEX_BITS, self.transform.lanes)
        vector = self.begin(tag, places)
        radii, starts = (
            [
                w.value(f"load {ints}, ptr {address}, align 4")
                for address in self.addresses(name, vector, places)
            ]
            for name in ("radii", "start")
        )
        sines = w.value(f"add i64 {vector}, {1 << self.transform.vector_bits}")
        targets = self.addresses("sums", vector, places) + self.addresses("sums", sines, places)
        before = [w.value(f"load {ints}, ptr {address}, align 4") for address in targets]
        sums = self.records(tag, before)
        values = self.load(tag, vector, places)
        self.butterflies(values, range(len(places)))
        masks = self.mask_bits(tag, vector, places) if self.masked else []
        nothing = integer_vector(self.feature.excess, self.transform.lanes)
        for k, value in enumerate(values):
            scaled = w.value(f"mul {ints} {value}, {radii[k]}")
            phase = w.value(f"add {ints} {scaled}, {starts[k]}")
            index = w.value(f"lshr {ints} {phase}, {shift}")
            for part, each in enumerate(self.feature.emit(index)):
                place = part * len(values) + k
                if self.masked:
                    choice = f"select <{self.transform.lanes} x i1> {masks[k]}"
                    each = w.value(f"{choice}, {ints} {each}, {ints} {nothing}")
                sums[place] = w.value(f"add {ints} {sums[place]}, {each}")
        sums = self.end_records(tag, sums)
        excess = w.value(f"mul i32 {w.value('trunc i64 %count to i32')}, {self.feature.excess}")
        correction = w.splat(excess, "i32", self.transform.lanes)
        for name, address in zip(sums, targets, strict=True):
            corrected = w.value(f"sub {ints} {name}, {correction}")
            w.line(f"  store {ints} {corrected}, ptr {address}, align 4")
        self.end(tag, places)

    # --- memory --------------------------------------------------------------------------------

    def addresses(self, table: str, vector: str, places: range) -> list[str]:
        """Where the entries of a group of vectors lie in a table."""
        found = []
        for k in range(1 << len(places)):
            offset = self.w.value(f"add i64 {vector}, {k << places.start}")
            found.append(
                self.w.value(f"getelementptr {self.ints}, ptr {self.tables[table]}, i64 {offset}")
            )
        return found

    def buffer(self, tag: str, vector: str, places: range) -> list[str]:
        """Where a group of vectors of the record at hand lies in the buffer."""
        w, transform = self.w, self.transform
        row = w.value(f"mul i64 %r_{tag}, {transform.record_stride}")
        skipped = w.value(f"lshr i64 {vector}, {transform.padding_shift}")
        offset = w.value(f"add i64 {row}, {w.value(f'add i64 {vector}, {skipped}')}")
        base = w.value(f"getelementptr {self.ints}, ptr %buffer, i64 {offset}")
        return [
            w.value(
                f"getelementptr {self.ints}, ptr {base}, i64 {transform.padded(k << places.start)}"
            )
            for k in range(1 << len(places))
        ]

    def mask_bits(self, tag: str, vector: str, places: range) -> list[str]:
        """Which features of a group of vectors the record at hand keeps."""
        w, transform = self.w, self.transform
        record = w.value(f"add i64 %first, %r_{tag}")
        block = w.value(f"add i64 {w.value(f'mul i64 {record}, %blocks')}, %b")
        first = w.value(f"shl i64 {block}, {transform.vector_bits}")
        place = w.value(f"add i64 {first}, {vector}")
        offset = w.value(f"mul i64 {place}, {mask_bytes(transform.lanes)}")
        row = w.value(f"getelementptr i8, ptr %masks, i64 {offset}")
        return [
            mask_of_vector(w, row, k << places.start, transform.lanes)
            for k in range(1 << len(places))
        ]

    def load(self, tag: str, vector: str, places: range) -> list[str]:
        return [
            self.w.value(f"load {self.ints}, ptr {address}, align {4 * self.transform.lanes}")
            for address in self.buffer(tag, vector, places)
        ]

    def store(self, tag: str, vector: str, places: range, values: list[str]) -> None:
        for value, address in zip(values, self.buffer(tag, vector, places), strict=True):
            self.w.line(
                f"  store {self.ints} {value}, ptr {address}, align {4 * self.transform.lanes}"
            )

    def weights(self, vector: str, places: range) -> list[tuple[str, str]]:
        """Signs of the columns to be read, for sums and for differences of pairs."""
        w = self.w
        found = []
        for k in range(1 << (len(places) - 1)):
            chunk = w.value(f"add i64 {vector}, {k << places.start}")
            both = []
            for part in range(2):
                offset = w.value(f"add i64 {w.value(f'shl i64 {chunk}, 1')}, {part}")
                address = w.value(
                    f"getelementptr {self.halves}, ptr {self.tables['signs2']}, i64 {offset}"
                )
                loaded = w.value(f"load {self.halves}, ptr {address}, align 4")
                both.append(self.widened(loaded))
            found.append((both[0], both[1]))
        return found

    def read(
        self, tag: str, vector: str, places: range, weights: list[tuple[str, str]]
    ) -> list[str]:
        """Columns of the record at hand, with all butterflies of `places` done."""
        w, lanes = self.w, self.transform.lanes
        record = w.value(f"add i64 %first, %r_{tag}")
        offset = w.value(f"shl i64 {record}, {self.transform.bits}")
        row = w.value(f"getelementptr i16, ptr %records, i64 {offset}")
        sums, differences = [], []
        for k, (plus, minus) in enumerate(weights):
            chunk = w.value(f"add i64 {vector}, {k << places.start}")
            address = w.value(f"getelementptr {self.halves}, ptr {row}, i64 {chunk}")
            loaded = w.value(f"load {self.halves}, ptr {address}, align 2")
            columns = self.widened(loaded)
            sums.append(pairwise_products(w, columns, plus, lanes))
            differences.append(pairwise_products(w, columns, minus, lanes))
        values = sums + differences
        self.butterflies(values, range(len(places) - 1))
        return values

    def widened(self, loaded: str) -> str:
        return self.w.value(f"sext {self.halves} {loaded} to <{2 * self.transform.lanes} x i32>")

    # --- arithmetic ----------------------------------------------------------------------------

    def butterflies(self, values: list[str], bits: range) -> None:
        """a + b and a - b of vectors that differ in a bit, for each of the bits; in place."""
        for bit in bits:
            for low in range(len(values)):
                high = low | 1 << bit
                if low != high:
                    a, b = values[low], values[high]
                    values[low] = self.w.value(f"add {self.ints} {a}, {b}")
                    values[high] = self.w.value(f"sub {self.ints} {a}, {b}")

    def rotate(self, values: list[str], rotation: tuple[int, ...]) -> None:
        """Exchanges the lowest vector bit with lane bits, as `Layout.rotate` says; in place."""
        masks = [_mask(rotation, self.transform.lanes, side) for side in range(2)]
        for low in range(0, len(values), 2):
            a, b = values[low], values[low + 1]
            for side in range(2):
                values[low + side] = self.w.value(
                    f"shufflevector {self.ints} {a}, {self.ints} {b}, {masks[side]}"
                )


def _mask(rotation: tuple[int, ...], lanes: int, side: int) -> str:
    """The shuffle that gathers one side of a rotation from two vectors."""
    sources = []
    for lane in range(lanes):
        source = lane
        arriving = side  # what a lane bit was before is found where it moved to
        for place in reversed(rotation):
            leaving = (lane >> place) & 1
            source = source & ~(1 << place) | arriving << place
            arriving = leaving
        sources.append(source + arriving * lanes)
    return f"<{lanes} x i32> <" + ", ".join(f"i32 {source}" for source in sources) + ">"

// What a step lives on: the memory of its tensors, its inputs, and the tape that replays it.
#include "bindings.hpp"

#include <stdexcept>

#include "../runtime/arena.hpp"
#include "../runtime/draft_inputs.hpp"
#include "../runtime/step_inputs.hpp"

namespace qanat {

namespace {

// A region is read and written through Python's buffer protocol: tensors are made of it and keep it alive.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    Region* region = nb::inst_ptr<Region>(nb::handle(self));
    return PyBuffer_FillInfo(view, self, region->data, static_cast<Py_ssize_t>(region->size_bytes), 0, flags);
}

PyType_Slot region_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

// (addresses of tokens, blocks and draw, first position, end, number of blocks, state's id, batch row): see `StepRequest`.
using RequestTuple = nb::typed<nb::tuple, Address, Address, Address, size_t, size_t, size_t, int32_t, size_t>;

// (addresses of tokens, blocks and draw, first position, end, first entry, number of blocks, of drafts, batch row): see
// `DraftRequest`.
using DraftTuple = nb::typed<nb::tuple, Address, Address, Address, size_t, size_t, size_t, size_t, size_t, size_t>;

}  // namespace

void bind_arena(nb::module_& m) {
    nb::class_<Region>(m, "Region", nb::type_slots(region_slots));
    nb::class_<Arena>(m, "Arena")
        .def(nb::init<size_t>())
        .def("overlay", [](const Arena& arena) { return std::make_shared<Arena>(arena); },
             "The same memory, as if nothing of it were given out.")
        .def("take", [](const std::shared_ptr<Arena>& arena, size_t size_bytes) -> std::unique_ptr<Region> {
            void* data = arena->take(size_bytes);
            return data ? std::make_unique<Region>(arena, data, size_bytes) : nullptr;
        }, "A region, or None where there is no room for it.")
        .def("holds", [](const Arena& arena, Address address) { return arena.holds(at(address)); },
             "Whether an address lies in its memory.")
        .def_prop_ro("size_bytes", &Arena::size_bytes)
        .def_prop_ro("used_bytes", &Arena::used_bytes)
        .def_prop_ro("peak_bytes", &Arena::peak_bytes)
        .def_prop_ro("num_taken", &Arena::num_taken)
        .def_prop_ro("num_missed", &Arena::num_missed)
        .def_prop_ro("num_holes", &Arena::num_holes);
}

void bind_tape(nb::module_& m) {
    nb::class_<Tape>(m, "Tape")
        .def(nb::init<>())
        .def("begin", &Tape::begin, "From here to `end`, ops of this thread are kept as well as run.")
        .def("end", &Tape::end)
        .def("replay", [](const Tape& tape) {
            nb::gil_scoped_release free;
            tape.replay();
        }, "Runs all of them again.")
        .def_prop_ro("num_ops", &Tape::num_ops);
    m.def("set_timed", &Tape::set_timed, "Whether ops are timed; starts at zero.");
    m.def("busy_ns", &Tape::busy_ns, "Nanoseconds inside ops since then.");
}

void bind_step_inputs(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<StepInputs>(m, "StepInputs")
        .def("__init__", [](StepInputs* self, const std::vector<Address>& arrays, size_t max_tokens, size_t table_width,
                            size_t block_size, size_t ring_size) {
            if (arrays.size() != 11) throw std::invalid_argument("a step has eleven arrays");
            const StepArrays to{at<int64_t>(arrays[0]), at<int64_t>(arrays[1]), at<int64_t>(arrays[2]),
                                at<int32_t>(arrays[3]), at<int32_t>(arrays[4]), at<int32_t>(arrays[5]),
                                at<int32_t>(arrays[6]), at<int32_t>(arrays[7]), at<int32_t>(arrays[8]),
                                at<Draw>(arrays[9]), at<int64_t>(arrays[10])};
            new (self) StepInputs(to, max_tokens, table_width, block_size, ring_size);
        }, "arrays"_a, "max_tokens"_a, "table_width"_a, "block_size"_a, "ring_size"_a)
        .def("fill", [](StepInputs& self, const nb::typed<nb::list, RequestTuple>& requests) {
            std::vector<StepRequest> own;
            own.reserve(requests.size());
            for (const nb::handle one : requests) {
                const nb::tuple t = nb::borrow<nb::tuple>(one);
                own.push_back({at<const int32_t>(nb::cast<Address>(t[0])), at<const int32_t>(nb::cast<Address>(t[1])),
                               at<const Draw>(nb::cast<Address>(t[2])), nb::cast<size_t>(t[3]), nb::cast<size_t>(t[4]),
                               nb::cast<size_t>(t[5]), nb::cast<int32_t>(t[6]), nb::cast<size_t>(t[7])});
            }
            self.fill(own);
        }, "Writes a step's inputs.");
}

void bind_draft_inputs(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<DraftInputs>(m, "DraftInputs")
        .def("__init__", [](DraftInputs* self, const std::vector<Address>& arrays, size_t max_tokens, size_t max_requests,
                            size_t num_later, size_t table_width, size_t block_size, size_t ring_size) {
            if (arrays.size() != 12) throw std::invalid_argument("drafts have twelve arrays");
            const DraftArrays to{at<int64_t>(arrays[0]), at<int64_t>(arrays[1]), at<int64_t>(arrays[2]),
                                 at<int64_t>(arrays[3]), at<int64_t>(arrays[4]), at<int64_t>(arrays[5]),
                                 at<int64_t>(arrays[6]), at<int32_t>(arrays[7]), at<int32_t>(arrays[8]),
                                 at<int32_t>(arrays[9]), at<int32_t>(arrays[10]), at<Draw>(arrays[11])};
            new (self) DraftInputs(to, max_tokens, max_requests, num_later, table_width, block_size, ring_size);
        }, "arrays"_a, "max_tokens"_a, "max_requests"_a, "num_later"_a, "table_width"_a, "block_size"_a, "ring_size"_a)
        .def("fill", [](DraftInputs& self, const nb::typed<nb::list, DraftTuple>& requests) {
            std::vector<DraftRequest> own;
            own.reserve(requests.size());
            for (const nb::handle one : requests) {
                const nb::tuple t = nb::borrow<nb::tuple>(one);
                own.push_back({at<const int32_t>(nb::cast<Address>(t[0])), at<const int32_t>(nb::cast<Address>(t[1])),
                               at<const Draw>(nb::cast<Address>(t[2])), nb::cast<size_t>(t[3]), nb::cast<size_t>(t[4]),
                               nb::cast<size_t>(t[5]), nb::cast<size_t>(t[6]), nb::cast<size_t>(t[7]),
                               nb::cast<size_t>(t[8])});
            }
            self.fill(own);
        }, "Writes the inputs of a draft layer's passes.");
}

}  // namespace qanat

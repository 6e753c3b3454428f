"""test_core_parity.py - the module has all that lacuna.h has, and _core.pyi says what the module has: each side is compared with the other.

Whatever is new in the header fails here until it has a counterpart, or a reason to have none.
"""

import ast
import inspect
import os
import re
import types

import numpy as np
from core_case import Case, main

import lacuna
from lacuna import _core

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

# What of the module a function of lacuna.h is.
FUNCTIONS = {
    "lac_last_error": "errors.Error",
    "lac_version": "__version__",
    "lac_set_log": "set_log_level",
    "lac_dtype_name": "Weight.dtype",
    "lac_dtype_parse": "Weight.dense",
    "lac_dtype_size": "DeviceArray.nbytes",
    "lac_pattern_parse": "Pattern",
    "lac_pattern_format": "Pattern.__str__",
    "lac_pattern_density": "Pattern.density",
    "lac_pattern_check": "Pattern.check",
    "lac_calibration_create": "Calibration",
    "lac_calibration_add": "Calibration.add",
    "lac_calibration_add_moments": "Calibration.add_moments",
    "lac_calibration_get_info": "Calibration.samples",
    "lac_calibration_error": "Calibration.error",
    "lac_calibration_free": "Calibration",
    "lac_prune": "prune",
    "lac_prune_and_correct": "prune_and_correct",
    "lac_mask_from_matrix": "Mask.from_matrix",
    "lac_mask_from_nonzeros": "Mask.from_nonzeros",
    "lac_mask_with_pattern": "Mask.with_pattern",
    "lac_mask_get_info": "Mask.kept",
    "lac_mask_get": "Mask.numpy",
    "lac_mask_apply": "Mask.apply",
    "lac_mask_reorder": "Mask.reorder",
    "lac_mask_energy": "Mask.energy",
    "lac_mask_free": "Mask",
    "lac_mask_save_smtx": "Mask.save_smtx",
    "lac_weight_compress": "compress",
    "lac_weight_decompress": "Weight.dense",
    "lac_weight_get_info": "Weight.kept",
    "lac_weight_get_part": "Weight.parts",
    "lac_part_name": "measure_weight",
    "lac_weight_from_parts": "weight_from_parts",
    "lac_weight_measure": "measure_weight",
    "lac_weight_shard": "Weight.shard",
    "lac_weight_free": "Weight",
    "lac_weight_retain": "Plan.weight",
    "lac_weight_load": "load",
    "lac_weight_save": "Weight.save",
    "lac_file_open": "File",
    "lac_file_get_info": "File.format",
    "lac_file_get_tensor": "File.tensors",
    "lac_file_find_tensor": "File.view",
    "lac_file_read_matrix": "File.read",
    "lac_file_get_weight": "File.weights",
    "lac_file_load_weight": "File.load",
    "lac_file_load_mask": "File.mask",
    "lac_file_get_metadata": "File.metadata",
    "lac_file_close": "File.close",
    "lac_writer_open": "Writer",
    "lac_writer_set_metadata": "Writer.set_metadata",
    "lac_writer_declare_tensor": "Writer.declare_tensor",
    "lac_writer_declare_weight": "Writer.declare_weight",
    "lac_writer_write_tensor": "Writer.write_tensor",
    "lac_writer_write_weight": "Writer.write_weight",
    "lac_writer_commit": "Writer.commit",
    "lac_writer_free": "Writer.discard",
    "lac_matrix_save_npy": "save_npy",
    "lac_checkpoint_prune": "prune_checkpoint",
    "lac_checkpoint_allocate": "allocate",
    "lac_allocation_get_info": "Allocation.layers",
    "lac_allocation_get_layer": "Allocation.__getitem__",
    "lac_allocation_get_option": "Allocation.options",
    "lac_allocation_free": "Allocation",
    "lac_device_probe": "devices",
    "lac_device_open": "Device",
    "lac_device_get_info": "Device.name",
    "lac_device_close": "Device",
    "lac_device_allocate": "DeviceArray",
    "lac_device_release": "DeviceArray",
    "lac_device_upload": "DeviceArray.copy_from",
    "lac_device_download": "DeviceArray.numpy",
    "lac_device_synchronize": "Device.synchronize",
    "lac_component_probe": "components",
    "lac_plan_create": "Plan",
    "lac_plan_get_info": "Plan.kernel",
    "lac_plan_explain": "Plan.explain",
    "lac_plan_execute": "Plan.__call__",
    "lac_plan_reference": "Plan.reference",
    "lac_plan_free": "Plan",
    "lac_kernel_probe": "kernels",
    "lac_kernels_compile": "compile_kernels",
}

# What has none, and why.
NO_FUNCTION = {
    "lac_status_name": "an exception's class says it",
    "lac_set_allocator": "before any other call and from one thread: an interpreter cannot promise that",
}
NO_VALUE = {
    "LAC_STATUS_OK": "no exception",
    "LAC_DTYPE_NONE": "None",
    "LAC_DTYPE_I8": "reserved",
    "LAC_DTYPE_E4M3": "reserved",
    "LAC_DTYPE_E5M2": "reserved",
    "LAC_LAYOUT_ROW_MAJOR": "'token'",
    "LAC_LAYOUT_COLUMN_MAJOR": "'feature'",
    "LAC_SCORE_DEFAULT": "None",
    "LAC_METHOD_DEFAULT": "None",
}
ARRAY = "an array tells it"
NO_FIELD = {
    "size": "the module sets it",
    "user": "the module's own",
    "lac_matrix.data": ARRAY,
    "lac_matrix.dtype": ARRAY,
    "lac_matrix.layout": ARRAY,
    "lac_matrix.rows": ARRAY,
    "lac_matrix.cols": ARRAY,
    "lac_matrix.ld": ARRAY,
    "lac_gradients.data": ARRAY,
    "lac_gradients.dtype": ARRAY,
    "lac_gradients.samples": ARRAY,
    "lac_tensor_info.data": "File.view() and File.tensor()",
    "lac_span.data": "Weight.parts",
    "lac_span.bytes": "Weight.parts",
    "lac_pattern.density": "Pattern.density, which lac_pattern_density gives for N:M too",
    "lac_pattern_violation.message": "the exception's text",
    "lac_mask_info.has_pattern": "Mask.pattern is None",
    "lac_prune_options.schedule_count": "len()",
    "lac_checkpoint_options.include_count": "len()",
    "lac_checkpoint_options.exclude_count": "len()",
    "lac_checkpoint_options.producer_count": "len()",
    "lac_allocate_options.pattern_count": "len()",
    "lac_kernels_compile_options.arch_count": "len()",
    "lac_kernels_compile_options.pattern_count": "len()",
    "lac_kernels_compile_options.m_count": "len()",
    "lac_checkpoint_options.prune": "its fields are keywords",
    "lac_checkpoint_options.compress": "its fields are keywords",
}

# A struct's fields are attributes, or keywords of a function; under another name where that is a better one in Python.
PLACES = {
    "lac_pattern": "Pattern",
    "lac_pattern_violation": None,
    "lac_mask_info": "Mask",
    "lac_calibration_info": "Calibration",
    "lac_prune_options": "prune",
    "lac_compress_options": "compress",
    "lac_weight_info": "Weight",
    "lac_file_info": "File",
    "lac_tensor_info": "TensorInfo",
    "lac_layer_report": "LayerReport",
    "lac_checkpoint_options": "prune_checkpoint",
    "lac_device_info": "Device",
    "lac_component_info": "ComponentInfo",
    "lac_plan_options": "Plan",
    "lac_plan_info": "Plan.",
    "lac_level_info": "Level",
    "lac_execute_args": None,
    "lac_allocate_options": "allocate",
    "lac_choice_info": "Choice",
    "lac_allocation_info": "Allocation",
    "lac_kernel_info": "KernelInfo",
    "lac_compile_report": "CompileReport",
    "lac_kernels_compile_options": "compile_kernels",
    "lac_matrix": None,
    "lac_gradients": None,
    "lac_span": None,
}
RENAMED = {
    "lac_weight_info.n_out": "out_features",
    "lac_weight_info.k_in": "in_features",
    "lac_plan_options.has_bias": "bias",
    "lac_plan_options.has_residual": "residual",
    "lac_file_info.tensors": "tensor_count",
    "lac_file_info.weights": "weight_count",
    "lac_file_info.masks": "mask_count",
    "lac_file_info.files": "file_count",
    "lac_file_info.bytes": "nbytes",
    "lac_tensor_info.bytes": "nbytes",
}
EXECUTE = {"x", "ldx", "y", "ldy", "bias", "c", "ldc", "stream", "workspace", "workspace_bytes"}  # of execute_pointers
# The values of an enum as texts, and who takes or gives them: (a call that refuses 'no such', the argument).
TAKERS = {
    "lac_score": ("prune", "score"),
    "lac_method": ("prune", "method"),
    "lac_index_encoding": ("compress", "encoding"),
    "lac_overflow": ("compress", "overflow"),
    "lac_layout": ("Plan", "x_layout"),
    "lac_activation": ("Plan", "activation"),
    "lac_precision": ("Plan", "precision"),
    "lac_resume": ("prune_checkpoint", "resume"),
    "lac_budget": ("allocate", "budget"),
    "lac_axis": ("shard", "axis"),
    "lac_part": ("weight_from_parts", "parts"),
    "lac_log_level": ("set_log_level", "level"),
}
TEXTS = {"LAC_ACTIVATION_GELU_ERF": "gelu", "LAC_LAYOUT_TOKEN_MAJOR": "token", "LAC_LAYOUT_FEATURE_MAJOR": "feature"}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def header():
    return re.sub(r"/\*.*?\*/", " ", read("include/lacuna.h"), flags=re.S)


def enums():
    """{enum: [value, ...]} and the flags' names"""
    found = {}
    for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (\w+);", header(), re.S):
        found[name] = re.findall(r"\bLAC_\w+(?=\s*=)", body)
    return found


def structs():
    """{struct: [field, ...]} of all whose fields are public"""
    found = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", header(), re.S):
        fields = []
        for line in body.split(";"):
            for part in line.split(","):
                words = re.findall(r"\w+", re.sub(r"\[.*?\]", "", part))
                if words:
                    fields.append(words[-1])
        found[name] = fields
    return found


def sources():
    folder = os.path.join(ROOT, "python", "src")
    return "".join(read(os.path.join(folder, name)) for name in sorted(os.listdir(folder)))


def keywords(name):
    """Of a function by its text signature; of Plan's constructor too."""
    return set(inspect.signature(getattr(_core, name)).parameters)


class Header(Case):
    def test_reading_works(self):
        self.assertIn("lac_plan_options", structs())
        self.assertEqual(structs()["lac_pattern"], ["family", "unit_n", "unit_k", "n", "m", "density"])
        self.assertEqual(len(enums()["lac_status"]), 12)

    def test_every_function(self):
        declared = set(re.findall(r"LAC_API[^;]*?\b(lac_\w+)\(", header()))
        self.assertGreater(len(declared), 80)
        self.assertEqual(declared, set(FUNCTIONS) | set(NO_FUNCTION))
        self.assertEqual(set(FUNCTIONS) & set(NO_FUNCTION), set())
        code = sources()
        for function, place in FUNCTIONS.items():
            it = lacuna if place.startswith("errors.") else _core
            for part in place.split("."):
                self.assertTrue(hasattr(it, part), f"{function}: no {place}")
                it = getattr(it, part)
            self.assertRegex(code, rf"\b{function}\(", f"{function} is not called")
        for function in NO_FUNCTION:
            self.assertNotRegex(code, rf"\b{function}\(")

    def test_every_status_is_an_exception(self):
        code = read("python/src/errors.c")
        for value in enums()["lac_status"]:
            if value in NO_VALUE:
                continue
            name = re.search(rf"\[{value}\] = \"(\w+)\"", code)
            self.assertIsNotNone(name, value)
            self.assertTrue(issubclass(getattr(lacuna.errors, name[1]), lacuna.Error), value)

    def taken(self, function, argument):
        """The texts that an argument takes, by what its refusal says."""
        w = self.normal(4, 8)
        weight = lacuna.compress(w, "2:4")
        calls = {
            "prune": lambda **k: lacuna.prune(w, "2:4", **k),
            "compress": lambda **k: lacuna.compress(w, "2:4", **k),
            "Plan": lambda **k: lacuna.Plan(weight, 1, **k),
            "prune_checkpoint": lambda **k: lacuna.prune_checkpoint("a", "b", "2:4", **k),
            "allocate": lambda **k: lacuna.allocate("a", ["2:4"], amount=1, **k),
            "shard": lambda axis: weight.shard(axis, 0, 4),
            "weight_from_parts": lambda parts: lacuna.weight_from_parts("2:4", 4, 8, "f32", {parts: b""}),
            "set_log_level": lambda level: lacuna.set_log_level(level),
        }
        with self.assertRaises(ValueError) as caught:
            calls[function](**{argument: "no such"})
        return set(re.findall(r"'(\w+)'", str(caught.exception)))

    def test_every_value_of_every_enum(self):
        every = enums()
        given = {"lac_status", "lac_dtype", "lac_family", "lac_file_format", "lac_device_kind"}  # shown, or tested elsewhere
        self.assertEqual(set(every), set(TAKERS) | given)
        for enum, (function, argument) in TAKERS.items():
            taken = self.taken(function, argument)
            for value in every[enum]:
                prefix = os.path.commonprefix(every[enum]).rsplit("_", 1)[0] + "_" if len(every[enum]) > 1 else ""
                text = TEXTS.get(value, value[len(prefix) :].lower())
                self.assertTrue(value in NO_VALUE or text in taken, f"{value}: {argument} takes {sorted(taken)}")
        for dtype in every["lac_dtype"]:
            if dtype not in NO_VALUE:
                self.assertEqual(lacuna.DeviceArray((1,), dtype[10:].lower(), "cpu").dtype, dtype[10:].lower())
        for pattern in ["2:4", "vw2:1:2", "bw2x2:1:2", "4:2:8", "shfl4:50%"]:
            every["lac_family"].remove("LAC_FAMILY_" + lacuna.Pattern(pattern).family.upper())
        self.assertEqual(every["lac_family"], [])
        code = read("python/src/names.c")
        for value in every["lac_file_format"] + every["lac_device_kind"]:
            self.assertRegex(code, rf"\"\w+\", {value}\b")

    def test_every_field_of_every_struct(self):
        every = structs()
        self.assertEqual(set(every), set(PLACES))
        code = sources()
        used = set()
        for struct, fields in every.items():
            place = PLACES[struct]
            for field in fields:
                full = f"{struct}.{field}"
                reasons = {full, field} & set(NO_FIELD)
                used |= reasons
                if reasons:
                    continue
                if struct == "lac_execute_args":
                    self.assertTrue(field in EXECUTE | {"alpha", "beta"}, full)
                    continue
                if place is None:
                    self.assertRegex(code, rf"LACPY_FIELD\({struct}, {field},", full)
                    continue
                name = RENAMED.get(full, field)
                owner = getattr(_core, place.rstrip("."))
                has = name in keywords(place) if not isinstance(owner, type) or struct.endswith("_options") else hasattr(owner, name)
                self.assertTrue(has, f"{full}: no {place} {name}")
        self.assertEqual(used, set(NO_FIELD), "reasons for fields that are not there")
        doc = inspect.signature(_core.Plan.execute_pointers).parameters
        self.assertEqual(set(doc) - {"self"}, EXECUTE)

    def test_signatures_are_true(self):
        """Every keyword of a signature is taken: None is a default for all, and no unexpected argument."""
        w = self.normal(4, 8)
        weight = lacuna.compress(w, "2:4")
        calls = {
            "prune": (w, "2:4"),
            "prune_and_correct": (w, "2:4"),
            "compress": (w, "2:4"),
            "Plan": (weight, 1),
            "measure_weight": ("2:4", 4, 8, "f32"),
            "prune_checkpoint": ("nowhere", "b"),
            "allocate": ("nowhere", ["2:4"], "density", 0.5),
            "compile_kernels": ("sm_42", ["2:4"]),
        }
        for name, given in calls.items():
            for keyword in list(inspect.signature(getattr(_core, name)).parameters)[len(given) :]:
                try:
                    getattr(_core, name)(*given, **{keyword: None})
                except lacuna.Error:
                    pass
                except TypeError as error:
                    self.assertNotIn("unexpected", str(error))
            self.refuses(TypeError, ["nonsense"], getattr(_core, name), *given, nonsense=None)

    def test_keywords_that_are_no_text(self):
        """Python lets f(**{b"x": 1}) through to what is written in C, and a dict of options may have any key."""
        w = self.normal(4, 8)
        weight = lacuna.compress(w, "2:4")
        for key in [b"threads", np.ndarray, object(), 1, None, ("threads",)]:
            for name, given in [
                ("prune", (w, "2:4")),
                ("prune_and_correct", (w, "2:4")),
                ("compress", (w, "2:4")),
                ("Plan", (weight, 1)),
                ("Pattern", ("2:4",)),
                ("prune_checkpoint", ("nowhere", "b")),
                ("allocate", ("nowhere", ["2:4"], "density", 0.5)),
                ("compile_kernels", ("sm_42", ["2:4"])),
            ]:
                with self.assertRaisesRegex(TypeError, f"{name}.. got an unexpected keyword argument {re.escape(repr(key))}"):
                    getattr(_core, name)(*given, **{key: 1})
            self.refuses(TypeError, [repr(key)], lacuna.allocate, "nowhere", ["2:4"], "density", 0.5, plan={key: 1})
            self.refuses(TypeError, [repr(key)], lacuna.compile_kernels, "sm_42", ["2:4"], plan={key: 1})

    def test_the_package_shows_it_all(self):
        for name in dir(_core):
            if not name.startswith("_") and not name.startswith("MAX_"):
                self.assertIs(getattr(lacuna, name, None), getattr(_core, name), name)
        # Checkers of types go by this list alone. A package has its modules too, when they are imported.
        shown = {name for name in dir(lacuna) if not name.startswith("_") and not isinstance(getattr(lacuna, name), types.ModuleType)}
        self.assertEqual(sorted(lacuna.__all__), sorted(shown | {"errors", "__version__"}))
        tree = ast.parse(read("python/lacuna/torch.py"))
        imported = {a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
        listed = next(ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__")
        self.assertEqual(sorted(listed), sorted(imported))


class Stubs(Case):
    """_core.pyi against the module, name by name and parameter by parameter, both ways."""

    def setUp(self):
        super().setUp()
        self.tree = ast.parse(read("python/lacuna/_core.pyi"))

    def parameters(self, node):
        a = node.args
        kinds = [(p, "positional") for p in a.posonlyargs] + [(p, "any") for p in a.args]
        defaults = [None] * (len(kinds) - len(a.defaults)) + a.defaults
        found = [(p.arg, kind, d and ast.literal_eval(d)) for (p, kind), d in zip(kinds, defaults)]
        if a.vararg:
            found.append((a.vararg.arg, "var", None))
        found += [(p.arg, "keyword", d and ast.literal_eval(d)) for p, d in zip(a.kwonlyargs, a.kw_defaults)]
        return [p for p in found if p[0] != "self"]

    def compare(self, node, function, what):
        kinds = {"POSITIONAL_ONLY": "positional", "POSITIONAL_OR_KEYWORD": "any", "KEYWORD_ONLY": "keyword", "VAR_POSITIONAL": "var"}
        real = [
            (p.name, kinds[p.kind.name], None if p.default is p.empty else p.default)
            for p in inspect.signature(function).parameters.values()
            if p.name != "self"
        ]
        self.assertEqual(self.parameters(node), real, what)

    def test_names(self):
        stub = {n.name for n in self.tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
        stub |= {n.target.id for n in self.tree.body if isinstance(n, ast.AnnAssign)}
        self.assertEqual(stub, {n for n in dir(_core) if not n.startswith("__")} | {"__version__"})

    def test_functions(self):
        functions = [n for n in self.tree.body if isinstance(n, ast.FunctionDef)]
        self.assertGreater(len(functions), 10)
        for node in functions:
            self.compare(node, getattr(_core, node.name), node.name)

    def test_classes(self):
        hidden = {
            "__copy__",
            "__deepcopy__",
            "__reduce__",
            "__new__",
            "__doc__",
            "__module__",
            "__repr__",
            "__str__",
            "__lt__",
            "__le__",
            "__gt__",
            "__ge__",
            "__ne__",
            "__weakref__",
            "__match_args__",
            "__replace__",
        }
        for node in self.tree.body:
            if not isinstance(node, ast.ClassDef):
                continue
            it = getattr(_core, node.name)
            stub = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
            if issubclass(it, tuple):
                self.assertEqual(list(stub), list(it.__match_args__), node.name)
                continue
            real = {name for name in vars(it) if name not in hidden}
            real |= {"__init__"} if vars(it).get("__new__") else set()
            self.assertEqual(set(stub) - {"__iter__"}, real, node.name)
            for name, method in stub.items():
                is_property = any(isinstance(d, ast.Name) and d.id == "property" for d in method.decorator_list)
                if name == "__init__":
                    self.compare(method, it, node.name)
                elif not name.startswith("__") or name.startswith("__dlpack") or name in ("__enter__", "__exit__"):
                    self.assertEqual(is_property, isinstance(vars(it)[name], types.GetSetDescriptorType), name)
                    if not is_property:
                        self.compare(method, getattr(it, name), f"{node.name}.{name}")

    def test_addresses_are_numbers(self):
        """Of execute_pointers() all operands are, which take arrays elsewhere."""
        plan = next(n for n in self.tree.body if isinstance(n, ast.ClassDef) and n.name == "Plan")
        method = next(n for n in plan.body if isinstance(n, ast.FunctionDef) and n.name == "execute_pointers")
        names = [a.arg for a in method.args.posonlyargs[1:]]
        self.assertEqual([ast.unparse(a.annotation) for a in method.args.posonlyargs[1:]], ["int"] * len(names))
        call = lacuna.Plan(lacuna.compress(self.normal(4, 8), "2:4"), 1).execute_pointers
        for i, name in enumerate(names):
            self.refuses(ValueError, [f"{name} is None", "an int"], call, *[None if j == i else 0 for j in range(len(names))])

    def test_everything_is_explained(self):
        for name in dir(_core):
            it = getattr(_core, name)
            if name.startswith("_") or isinstance(it, int):
                continue
            self.assertTrue(it.__doc__, name)
            for member, value in vars(it).items() if isinstance(it, type) and not issubclass(it, tuple) else ():
                if isinstance(value, (types.GetSetDescriptorType, types.MethodDescriptorType)):
                    self.assertTrue(value.__doc__, f"{name}.{member}")


if __name__ == "__main__":
    main()

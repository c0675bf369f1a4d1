"""llama.cpp's own tokenizer, through the compiled module of llama-cpp-cffi (its Python layer is not used)."""

import importlib.util
import pathlib
import sysconfig


class LlamaCpp:
    def __init__(self, model_file):
        self.lib, self.ffi = compiled_module()
        self.lib.llama_backend_init()
        params = self.lib.llama_model_default_params()
        params.vocab_only = True
        path = self.ffi.new("char[]", str(model_file).encode())
        self.model = self.lib.llama_model_load_from_file(path, params)
        self.vocab = self.lib.llama_model_get_vocab(self.model)

    def tokenize(self, text, special=True):
        """Ids without BOS. `special`: special tokens written in the text become their ids."""
        raw = text.encode()
        room = len(raw) + 1
        ids = self.ffi.new("llama_token[]", room)
        count = self.lib.llama_tokenize(self.vocab, self.ffi.new("char[]", raw), len(raw), ids, room, False, special)
        assert count >= 0, (text, count)
        return list(ids[0:count])


def compiled_module():
    (path,) = pathlib.Path(sysconfig.get_path("purelib"), "llama").glob("_llama_cpp_cpu*.so")
    spec = importlib.util.spec_from_file_location("_llama_cpp_cpu", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.lib, module.ffi

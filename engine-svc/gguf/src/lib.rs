//! GGUF files: header, metadata, tensors by mmap, block formats

"""A model whose samples are spread over the processes of torch.distributed."""

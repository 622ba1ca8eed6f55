"""From a tensor field to streamlines, bundles and their cores: does the tensor lead to the right fibres?"""

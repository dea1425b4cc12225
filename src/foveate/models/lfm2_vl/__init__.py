"""LFM2-VL: a SigLIP2 NaFlex tower, a pixel-unshuffle projector and the LFM2 language model."""

return each(0, 0, show)
